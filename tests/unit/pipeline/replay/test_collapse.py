"""Net changes: composing runs, and collapsing events, against a row that is simply changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedur.change.event import STEP, Event, Kind
from vedur.change.snapshot import Snapshot
from vedur.pipeline.replay.collapse import Collapser
from vedur.tables.mapping import TableSpec, TargetColumn

ops = st.lists(st.sampled_from([Kind.INSERT, Kind.UPDATE, Kind.DELETE]), min_size=1, max_size=8)
ERROR = "error"


def simulate(run: list[Kind], row: str | None) -> str | None:
    """What becomes of a row: None is missing."""
    for number, op in enumerate(run):
        if op == "I":
            if row is not None:
                return ERROR
            row = f"row{number}"
        elif op == "U":
            row = None if row is None else f"row{number}"
        else:
            row = None
    return row


def effect(kind: str, row: str | None, last: str) -> str | None:
    """The table in vedur/change/event.py."""
    missing, exists = {
        "I": (last, ERROR),
        "U": (None, last),
        "D": (None, None),
        "P": (last, last),
        "N": (None, ERROR),
        "X": (ERROR, ERROR),
    }[kind]
    return missing if row is None else exists


def kind_of(run: list[Kind]) -> Kind:
    kind, *rest = run
    for op in rest:
        kind = STEP[kind][op]
    return kind


@given(ops, st.sampled_from([None, "old"]))
def test_a_kind_does_what_the_events_do(run: list[Kind], row: str | None) -> None:
    got = effect(kind_of(run), row, f"row{len(run) - 1}")
    want = simulate(run, row)
    if want in (None, ERROR):
        assert got == want
    else:
        assert got == want or run[-1] == "U"


_I, _U, _D = Kind.INSERT, Kind.UPDATE, Kind.DELETE
#: Events that a kind stands for.
OPS = {_I: [_I], _U: [_U], _D: [_D], Kind.REPLACE: [_D, _I], Kind.NOTHING: [_I, _D]}


def compose(first: Kind, second: Kind) -> Kind:
    """The kind of two runs in order."""
    if Kind.CONFLICT in (first, second):
        return Kind.CONFLICT
    kind = first
    for op in OPS[second]:
        kind = STEP[kind][op]
    return kind


@given(ops, ops)
def test_runs_compose(first: list[Kind], second: list[Kind]) -> None:
    assert compose(kind_of(first), kind_of(second)) == kind_of(first + second)


def spec(**values: object) -> TableSpec:
    columns = (
        TargetColumn("id", "integer", canonical=True),
        TargetColumn("a", "text"),
        TargetColumn("b", "text"),
    )
    return TableSpec(
        "s.t",
        '"s"."t"',
        "stage",
        columns,
        (frozenset(["id"]),),
        **values,  # type: ignore[arg-type]
    )


def event(number: int, op: str, data: str, txid: int = 1) -> Event:
    return Event(number, txid, f"{op}:id", data, "s.t")


def collapse(*events: Event, **values: object) -> Collapser:
    collapser = Collapser({"s.t": spec(**values)})
    for one in events:
        collapser.add(one)
    return collapser


def staged(collapser: Collapser) -> list[list[str]]:
    buffers, _ = collapser.take()
    return [x[:-1].split("\t") for b in buffers.values() for x in b.lines(7)]


def test_last_values_win_and_the_run_is_remembered() -> None:
    got = collapse(event(1, "I", "id=1&a=x&b"), event(5, "U", "id=1&a=y&b=%09"))
    ((number, first, last, kind, _shape, *row),) = staged(got)
    assert (number, first, last, kind) == ("7", "1", "5", "I")
    assert row == ["1", "y", "\\t"]


def test_updates_with_other_columns_are_put_together() -> None:
    got = collapse(event(1, "U", "id=1&a=x"), event(2, "U", "id=1&b=z"))
    assert [row[5:] for row in staged(got)] == [["1", "x", "z"]]


def test_a_truncate_makes_earlier_changes_pointless() -> None:
    truncate = Event(3, 1, "R", "", "s.t")
    got = collapse(event(1, "I", "id=1&a=x"), truncate, event(4, "I", "id=2&a=y"))
    assert got.truncates == {"s.t": 3}
    assert [row[5] for row in staged(got)] == ["2"]


def test_a_column_that_the_target_lacks_is_reported_with_its_event() -> None:
    got = collapse(event(9, "I", "id=1&c=x", txid=4))
    assert staged(got) == []
    (fault,) = got.faults
    assert (fault.ev_id, fault.ev_txid, fault.table) == (9, 4, "s.t")
    assert '"c"' in fault.problem


def test_events_of_the_first_copy_are_left_out() -> None:
    snapshot = Snapshot.parse("10:20:15")
    got = collapse(
        event(1, "I", "id=1&a=x", txid=9),
        event(2, "I", "id=2&a=x", txid=15),
        event(3, "I", "id=3&a=x", txid=20),
        snapshot=snapshot,
    )
    assert [row[5] for row in staged(got)] == ["2", "3"]
    assert got.ignored == 1


def test_other_formats_and_loose_keys_keep_their_order() -> None:
    fragment = collapse(Event(1, 1, "U", "a='x' where id='1'", "s.t"))
    assert [e.ev_id for e in fragment.take()[1]] == [1]
    loose = collapse(Event(1, 1, "I:a", "id=1&a=x", "s.t"))
    assert [e.ev_id for e in loose.take()[1]] == [1]


def test_unknown_tables_and_system_events() -> None:
    got = collapse(Event(1, 1, "I:id", "id=1", "s.other"), Event(2, 1, "EXECUTE", "x", "f.sql"))
    assert got.ignored == 1
    assert [e.ev_id for e in got.barriers] == [2]


def test_events_that_do_not_name_their_table_where_readers_look_keep_their_order() -> None:
    """They come apart from those that do, so only the log can put both in order."""
    spec = TableSpec(
        "public.t", '"public"."t"', "stage", (TargetColumn("id", "integer", canonical=True),),
        unique_keys=(frozenset(("id",)),),
    )  # fmt: skip
    collapser = Collapser({"public.t": spec}, frozenset(), None)
    kind = '{{"op":"{}","table":["public","t"],"pkey":["id"]}}'
    collapser.add_row("2", "7", kind.format("DELETE"), '{"id":1}', None)
    collapser.add_row("3", "7", kind.format("INSERT"), '{"id":1}', "public.t")
    buffers, logged = collapser.take()
    assert [(e.ev_id, e.ev_extra1) for e in logged] == [(2, "public.t"), (3, "public.t")]
    assert not buffers


def test_an_update_behind_a_delete_finds_no_row_and_counts() -> None:
    """Also where the delete is the first that is known of the key."""
    spec = TableSpec(
        "public.t", '"public"."t"', "stage",
        (TargetColumn("id", "integer", canonical=True), TargetColumn("v", "text")),
        unique_keys=(frozenset(("id",)),),
    )  # fmt: skip
    kind = '{{"op":"{}","table":["public","t"],"pkey":["id"]}}'
    for before in ([], ["INSERT"]):
        collapser = Collapser({"public.t": spec}, frozenset(), None)
        for number, op in enumerate([*before, "DELETE", "UPDATE"]):
            collapser.add_row(str(number), "7", kind.format(op), '{"id":1,"v":"x"}', "public.t")
        (buffer,) = collapser.take()[0].values()
        assert buffer.noop == 1
