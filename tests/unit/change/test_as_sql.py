"""Events as statements that a person can run: only for what was not replicated."""

from __future__ import annotations

import pytest

from vedur.change.as_sql import as_sql
from vedur.change.event import Event


def event(ev_type: str, data: str | None, table: str | None = "public.t") -> Event:
    return Event(7, 1, ev_type, data, table)


@pytest.mark.parametrize(
    ("ev_type", "data", "wanted"),
    [
        (
            "I:id",
            "id=1&v=it%27s",
            """insert into "public"."t" ("id", "v") values ('1', 'it''s');""",
        ),
        ("I:id", "id=1&v", """insert into "public"."t" ("id", "v") values ('1', null);"""),
        ("U:id", "id=1&v=a%5Cb", """update "public"."t" set "v" = E'a\\\\b' where "id" = '1';"""),
        ("D:id", "id=1&v=x", """delete from "public"."t" where "id" = '1';"""),
        ("R", None, 'truncate only "public"."t";'),
        ("D", "id='1'", """delete from "public"."t" where "id" = '1';"""),
        (
            '{"op":"UPDATE","table":["public","T"],"pkey":["id"]}',
            '{"id": 1, "v": "x"}',
            """update "public"."T" set "v" = 'x' where "id" = '1';""",
        ),
    ],
)
def test_a_row(ev_type: str, data: str | None, wanted: str) -> None:
    assert as_sql(event(ev_type, data)) == wanted


def test_what_is_about_no_row_is_a_comment_however_it_is_written() -> None:
    script = as_sql(event("EXECUTE", "drop table x;\r\ndrop table y;\u2028drop table z", "s.sql"))
    assert all(line.startswith("-- ") for line in script.splitlines())
    assert "drop table y" in script
    assert as_sql(event("pgq.location-info", "n1")) == "-- event 7, pgq.location-info: n1"


def test_names_and_values_cannot_leave_their_place() -> None:
    hostile = as_sql(event("U:id", "id=1&v%22%3B=%27%3B--", 'public.t"; drop table x'))
    assert hostile == (
        """update "public"."t""; drop table x" set "v"";" = ''';--' where "id" = '1';"""
    )
