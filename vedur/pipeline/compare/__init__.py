"""Two tables at one moment: equal or not, and if not, which rows. Hashing happens in PostgreSQL.

`match_columns` and `Pair` say what is compared, `checksum` hashes both sides slice by slice,
`bucket_sums` does it by bucket of the key, `differing_keys` and `describe` narrow a difference
down to rows and columns. A `Comparer` does all this in a session of its own or in one that a
running worker lends.
"""

from __future__ import annotations

from vedur.pipeline.compare.columns import ColumnInfo, Matched, match_columns
from vedur.pipeline.compare.comparer import Comparer, SparkComparer
from vedur.pipeline.compare.engine import bucket_sums, checksum, custom_checksum, rounded
from vedur.pipeline.compare.lend import Borrowed, Lender, NobodyLends, socket_path
from vedur.pipeline.compare.model import Buckets, Pair, Side, Sums
from vedur.pipeline.compare.narrow import Difference, Differences, describe, differing_keys
from vedur.pipeline.compare.plan import make_pair

__all__ = [
    "Borrowed",
    "Buckets",
    "ColumnInfo",
    "Comparer",
    "Difference",
    "Differences",
    "Lender",
    "Matched",
    "NobodyLends",
    "Pair",
    "Side",
    "SparkComparer",
    "Sums",
    "bucket_sums",
    "checksum",
    "custom_checksum",
    "describe",
    "differing_keys",
    "make_pair",
    "match_columns",
    "rounded",
    "socket_path",
]
