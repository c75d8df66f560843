"""Two tables at one moment: equal or not, and if not, which rows. Hashing happens in PostgreSQL.

`columns_to_compare` and `Pair` say what is compared, `checksum` hashes both sides slice by slice,
`bucket_sums` does it by bucket of the key, `differing_keys` and `describe` narrow a difference
down to rows and columns. A `Comparer` does all this in a session of its own or in the
shared session of a running worker.
"""

from __future__ import annotations

from vedur.errors import SessionNotShared
from vedur.pipeline.compare.custom_sql import custom_sql, is_standard
from vedur.pipeline.compare.engine import (
    Comparer,
    Difference,
    Differences,
    SparkComparer,
    bucket_sums,
    checksum,
    custom_checksum,
    describe,
    differing_keys,
    rounded,
)
from vedur.pipeline.compare.expected import make_expected_pair, stage_expected
from vedur.pipeline.compare.model import Buckets, Pair, Side, Sums
from vedur.pipeline.compare.plan import Matched, columns_to_compare, make_pair, with_pieces_of
from vedur.pipeline.compare.shared_session import (
    SessionServer,
    SharedComparer,
    open_comparer,
    socket_path,
)

__all__ = [
    "Buckets",
    "Comparer",
    "Difference",
    "Differences",
    "Matched",
    "Pair",
    "SessionNotShared",
    "SessionServer",
    "SharedComparer",
    "Side",
    "SparkComparer",
    "Sums",
    "bucket_sums",
    "checksum",
    "columns_to_compare",
    "custom_checksum",
    "custom_sql",
    "describe",
    "differing_keys",
    "is_standard",
    "make_expected_pair",
    "make_pair",
    "open_comparer",
    "rounded",
    "socket_path",
    "stage_expected",
    "with_pieces_of",
]
