"""Whether what was staged can be merged as it is."""

from __future__ import annotations

from typing import Any

from vedur.change.event import Event, EventRange
from vedur.pipeline.replay.staged import Staged, check, combined
from vedur.tables.mapping import TableSpec, TargetColumn

SPEC = TableSpec(
    "public.t",
    '"public"."t"',
    "stage",
    (TargetColumn("id", "integer", "", False, False, True),),
    (frozenset(("id",)),),
)


def staged(
    *,
    rows: int = 0,
    last: int = 0,
    early: int = 0,
    late: int = 0,
    script: int | None = None,
    log_from: int | None = None,
    truncate: int | None = None,
) -> Staged:
    """One slice with `rows` net changes up to event `last`, and events logged around a script."""
    found = Staged("q", 0, log_from=log_from, source=EventRange("e", ("true",), 1))
    table: dict[str, Any] = {
        "keys": ["id"],
        "shapes": {"1": ["id"]},
        "kinds": {"U/1": rows} if rows else {},
        "chunks": 1 if rows else 0,
        "logged": early + late,
        "early": early,
        "noop": 0,
        "last": last,
    }
    scripts = [] if script is None else [Event(script, 1, "EXECUTE", "select 1")]
    found.barriers = scripts
    summary = {
        "slice": 1,
        "events": 1,
        "raw": None,
        "ignored": 0,
        "barriers": [],
        "faults": [],
        "missing_columns": {},
        "truncates": {} if truncate is None else {"public.t": truncate},
        "tables": {"public.t": table} if rows or early or late else {},
    }
    found.add(summary, {"public.t": SPEC})
    return found


def test_what_keeps_its_order_beside_net_changes_or_a_truncate_is_logged_as_a_whole() -> None:
    assert check(staged(rows=2, last=9)) is None
    assert check(staged(early=3)) is None
    for found in (
        staged(rows=2, last=9, early=1),
        staged(early=1, truncate=5),
        staged(rows=2, last=9, early=1, late=4, script=20, log_from=20),
    ):
        again = check(found)
        assert again is not None and again.log_tables == {"public.t"}


def test_a_script_parts_net_changes_from_what_follows() -> None:
    again = check(staged(rows=2, last=30, script=20))
    assert again is not None and again.log_from == 20
    assert check(staged(rows=2, last=10, late=4, script=20, log_from=20)) is None
    assert check(staged(late=4, truncate=10, script=20, log_from=20)) is None


def test_ranges_put_together_respect_the_first_script_of_both() -> None:
    script = staged(rows=1, last=10, late=1, script=20, log_from=20)
    for second in (
        staged(rows=1, last=40),
        staged(truncate=40),
        staged(rows=1, last=40, late=1, script=50, log_from=50),
    ):
        again = check(combined(script, second))
        assert again is not None and again.log_from == 20
