"""What the statements of a comparison cost the server, in its own processor time.

Seconds on the clock mean little on a machine that others use; the time that one backend has run
means the same on any day. Linux only: it is read from /proc.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench.compare_lab.peers import Ground
from vedur import db as vdb
from vedur.pipeline.compare import Pair, make_pair
from vedur.pipeline.compare.engine import bucket_mask
from vedur.pipeline.compare.jobs import SOURCE, plan_work
from vedur.sql import query
from vedur.tables.mapping import TableMap

PLAIN = "select count(1), sum(hashtext(t.*::text)::bigint) from only account t"
_TICKS = 100  # a second, in /proc


def statements(ground: Ground, rounds: int = 3) -> dict[str, Any]:
    """Seconds of one backend for each kind of pass over the table; medians, and ratios to the
    checksum that Londiste asks for."""
    with ground.open("root", "base") as root, ground.open("leaf", "base") as leaf:
        kinds = _kinds(make_pair(root, leaf, TableMap("account", "account")), ground.rows)
        root.execute(query("compare", "pin"))
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, texts in kinds.items():
                before = _spent(root)
                for text in texts:
                    root.query(text)
                taken[kind].append(_spent(root) - before)
    middle = {kind: round(statistics.median(times), 2) for kind, times in taken.items()}
    first = middle["plain"]
    return {"seconds": middle, "ratio": {k: round(v / first, 2) for k, v in middle.items()}}


def _kinds(pair: Pair, rows: int) -> dict[str, list[str]]:
    mask = bucket_mask(rows)
    named = {
        "compare": plan_work(pair, query("compare", "sums"), 64),
        "compare --rows": plan_work(pair, query("compare", "bucket_sums"), 64, mask=mask),
        "rows of four buckets": plan_work(
            pair, query("compare", "key_hashes"), 64, mask=mask, buckets=(1, 2, 3, 4)
        ),
    }
    return {"plain": [PLAIN.replace("account", "public.account")]} | {
        kind: [text for item in work if item.side == SOURCE for text in item.statements]
        for kind, work in named.items()
    }


def _spent(db: vdb.Database) -> float:
    fields = Path(f"/proc/{db.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
