"""Where a script of `execute` runs: the conditions of its header against a real catalog."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.errors import StateError
from vedur.script.attrs import ScriptAttrs, matches


@pytest.mark.parametrize(
    "attrs, fits",
    [
        ("local-destination=s.a", True),  # the set's name, and its table is here
        ("local-destination=other.b", False),  # not a name of the set
        ("local-destination=s.gone", False),  # registered, but its table is not here
        ("local-table=s.gone", True),
        ("need-function=s.f", True),  # no number: no arguments
        ("need-function=s.f%280%29", True),
        ("need-function=s.f%282%29", False),
        ("need-function=s.g", False),
        ("need-function=s.g%28+1+%29", True),
    ],
)
def test_conditions(db: vdb.Database, attrs: str, fits: bool) -> None:
    db.execute(
        """
        create schema s; create schema other; create table other.b (id int);
        create function s.f() returns int language sql as 'select 1';
        create function s.g(int) returns int language sql as 'select 1';
        """
    )
    tables = {"s.a": "other.b", "s.gone": "other.gone"}
    assert matches(db, ScriptAttrs.parse(attrs), tables, set()) is fits


def test_a_number_that_is_none_is_told(db: vdb.Database) -> None:
    with pytest.raises(StateError, match=r'Need-Function "f\(x\)" is not name'):
        matches(db, ScriptAttrs.parse("need-function=f%28x%29"), {}, set())
