"""What masks cost a task: processor time for an event of one table, without servers and Spark.

Blocks of COPY text, as the provider sends them, are staged into memory: a plain table, and one of
which two columns of four are masked by one rule, by column and event by event. All in turns, so a
busy machine does not matter much. The values of the two columns are all different; a mask of text,
or of JSON, is computed once for each different value. Run it as `python -m bench.masks`; what it
prints is for docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from vedur.handlers.obfuscate import Obfuscate
from vedur.handlers.testing import make_function
from vedur.pipeline.replay.collapse import Collapser
from vedur.pipeline.replay.fast_path.columns import LEAST_RUN
from vedur.pipeline.replay.fast_path.rows import FastReader
from vedur.tables.mapping import TableSpec, TargetColumn

TABLE = "public.people"
#: A rule for both columns, and the type of their values.
RULES = {
    "null": "text", "constant:x": "text", "bool": "text", "partial:1:4": "text", "hash": "text",
    "hash64": "text", "shift:30 of dates": "date", "shift:30 of timestamps": "timestamptz",
    "mask": "text",
}  # fmt: skip
_BLOCK = 1 << 20
_NEVER = 1 << 30


def spec(rule: str | None) -> TableSpec:
    """Return the table, two of whose columns have a rule."""
    types = {"id": "integer", "name": "text", "mail": "text", "note": "text"}
    if rule is not None:
        kind = {"date": "date", "timestamptz": "timestamp with time zone"}.get(RULES[rule], "text")
        types |= {"name": kind, "mail": kind}
    columns = tuple(TargetColumn(name, kind, canonical=True) for name, kind in types.items())
    plain = TableSpec(TABLE, '"public"."people"', "s", columns, (frozenset(("id",)),))
    if rule is None:
        return plain
    word = rule.split(" ")[0]
    rules = {TABLE: {"name": word, "mail": word, "*": "keep"}}
    options = {"obfuscator_key": "of the bench", "obfuscator_map": json.dumps(rules)}
    return replace(plain, rows=make_function(Obfuscate, TABLE, None, options))


def values(kind: str, number: int) -> tuple[str, str]:
    """Return the two values of an event that are masked."""
    day = f"{1950 + number % 60}-{1 + number % 12:02d}-{1 + number % 28:02d}"
    if kind == "date":
        return day, day
    if kind == "timestamptz":
        fraction = f"{number:06d}".rstrip("0")
        return f"{day}T20:12:12.{fraction}+00:00", f"{day}T08:12:12.{fraction}+00:00"
    return f"name {number} 2026-11-18 20:12:12.{number:06d}+00", f"mail{number}@example.org"


def blocks(kind: str, events: int) -> list[bytes]:
    """Return updates of that many rows as COPY sends them."""
    said = '{"op":"UPDATE","table":["public","people"],"pkey":["id"]}'
    rows = []
    for number in range(1, events + 1):
        name, mail = values(kind, number)
        data = f'{{"id":{number},"name":"{name}","mail":"{mail}","note":"nnnnnn"}}'
        rows.append(f"{1000 + number}\t7\t\t\t{said}\t{TABLE}\t{data}\n".encode())
    size = max(1, _BLOCK // len(rows[0]))
    return [b"".join(rows[at : at + size]) for at in range(0, len(rows), size)]


def stage(table: TableSpec, data: Sequence[bytes], events: int, least_run: int) -> float:
    """Return microseconds of processor time for an event."""
    collapser = Collapser({TABLE: table})
    written = 0

    def flush() -> None:
        nonlocal written
        for buffer in collapser.take()[0].values():
            for copy in buffer.copies(1):
                written += sum(len(block) for block in copy.data)

    reader = FastReader(collapser, 64 << 20, flush, least_run)
    begin = time.process_time()
    for block in data:
        reader.feed(block)
    reader.end()
    took = time.process_time() - begin
    assert written > 40 * events, "the changes were staged"
    return took / events * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.masks", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    data = {kind: blocks(kind, args.events) for kind in sorted(set(RULES.values()))}
    found: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    slow: dict[str, Any] = {}
    for number in range(args.rounds + 1):
        for rule, kind in RULES.items():
            plain = stage(spec(None), data[kind], args.events, LEAST_RUN)
            masked = stage(spec(rule), data[kind], args.events, LEAST_RUN)
            found[rule] += [(plain, masked - plain)] if number else []
            if rule not in slow:
                slow[rule] = stage(spec(rule), data[kind], args.events, _NEVER) - plain
    for rule, each in found.items():
        more = [one[1] for one in each]
        print(
            f"| `{rule}` | {median(more):.2f} ({min(more):.2f}..{max(more):.2f})"
            f" | {slow[rule]:.1f} |"
        )
    print(f"plain: {median(one[0] for each in found.values() for one in each):.2f}")


if __name__ == "__main__":
    main()
