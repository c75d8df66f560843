"""dispatch and its presets: arguments, what they declare, what they refuse."""

from __future__ import annotations

import pytest

from vedur.errors import StateError, UsageError
from vedur.handlers.api import Handler, Partitions, Scope
from vedur.handlers.dispatch import PRESETS
from vedur.handlers.registry import Registry
from vedur.tables.mapping import TableMap


def make(name: str, **args: str) -> Handler:
    return Registry().make(name, "public.t", dict(args))


def scope(name: str, **args: str) -> Scope:
    return make(name, **args).scope((True,), {})


def test_the_presets_are_upstreams() -> None:
    periods = ("hourly", "daily", "monthly", "yearly")
    modes = ("event", "batch", "field", "time")
    wanted = {f"{load}{p}_{m}" for load in ("", "bulk_") for p in periods for m in modes}
    assert {cls.name for cls in PRESETS} == wanted


def test_a_preset_sets_what_is_not_given() -> None:
    found = scope("bulk_monthly_field", part_field="at").partitions
    assert found == Partitions(
        "month",
        "%(parent)s_%(year)s_%(month)s",
        "at",
        "batch",
        "keep_latest",
        '"londiste"."create_partition"',
    )
    other = scope("hourly_event", period="year", row_mode="plain").partitions
    assert other is not None
    assert (other.period, other.moment, other.row_mode) == ("year", "event", "plain")


@pytest.mark.parametrize(
    "handler, args, problem",
    [
        ("daily_field", {}, "part_field=COLUMN"),
        ("daily_event", {"part_field": "at"}, "is for part_mode=date_field"),
        ("dispatch", {"period": "week"}, "one of hour, day, month, year"),
        ("dispatch", {"event_types": "I,X"}, "list of I, U and D"),
        ("dispatch", {"part_name": "%(parent)s_%(year)s"}, "lacks %(month)s"),
        ("dispatch", {"part_name": "%(parent)s_%(week)s"}, "may have %(parent)s"),
        ("dispatch", {"part_template": "create table %s"}, "may have %(dest)s"),
        ("dispatch", {"pre_part": "select 5 % 2"}, "%%"),
        ("dispatch", {"retention_period": "long"}, "hours, days, weeks"),
        ("dispatch", {"ignore_old_events": "1"}, "says nothing without retention_period"),
        (
            "yearly_event",
            {"retention_period": "2 years", "part_name": "%(parent)s_x_%(year)s"},
            "by the time in their names",
        ),
        (
            "daily_event",
            {"retention_period": "2 days", "part_template": "create table %(part)s (id int)"},
            "must inherit from the table",
        ),
        ("yearly_event", {"part_name": "x_%(year)s"}, "lacks %(parent)s"),
        ("yearly_event", {"part_name": "%(parent)s%%%(year)s"}, "%(hour)s, not"),
        ("dispatch", {"table_mode": "direct", "retention_period": "1 day"}, "is for partitions"),
        ("dispatch", {"table_mode": "ignore", "part_field": "at"}, "is for partitions"),
        ("dispatch", {"table_mode": "direct", "part_name": "%(parent)s"}, "is for partitions"),
        ("dispatch", {"fields": "id,at:time"}, "one of *"),
        ("dispatch", {"skip_fields": "v"}, "Invalid handler argument"),
        ("dispatch", {"method": "3"}, "one of 0, 1, 2"),
        ("dispatch", {"part_func": "a."}, "is not a name"),
    ],
)
def test_arguments_that_cannot_be_meant(handler: str, args: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError) as error:
        make(handler, **args)
    assert problem in error.value.message


def test_a_database_without_the_functions() -> None:
    with pytest.raises(StateError, match="brings the SQL up to date"):
        make("daily_event").scope((False,), {})


def test_without_partitions() -> None:
    direct = make("dispatch", table_mode="direct", event_types="*")
    assert direct.facts_query() is None
    assert direct.scope(None, {}) == Scope()
    ignored = make("dispatch", table_mode="ignore").scope(None, {})
    assert not ignored.applies
    with pytest.raises(StateError, match="is for partitions"):
        make("dispatch", table_mode="direct", row_mode="keep_latest").scope(None, {})


@pytest.mark.parametrize(
    "handler, args, why",
    [
        ("daily_field", {"part_field": "at"}, ""),
        ("daily_field", {"part_field": "at", "retention_period": "1 month"}, "retention_period"),
        ("daily_field", {"part_field": "at", "row_mode": "keep_all"}, "all versions"),
        ("daily_field", {"part_field": "at", "event_types": "I"}, "only I"),
        ("daily_event", {}, "a history"),
    ],
)
def test_what_can_be_compared(handler: str, args: dict[str, str], why: str) -> None:
    found = scope(handler, **args)
    assert (why in found.uncomparable) if why else found.uncomparable == ""


def test_a_truncate_that_is_ignored() -> None:
    assert "R" in scope("daily_field", part_field="at").operations
    assert "R" not in scope("daily_event").operations
    found = scope("daily_field", part_field="at", ignore_truncate="1")
    assert found.operations == "IUD"
    assert "TRUNCATE" in found.unrepairable


@pytest.mark.parametrize(
    "period, begins",
    [
        ("hour", "2026-11-18 06:00:00"),
        ("day", "2026-11-18 00:00:00"),
        ("month", "2026-11-01 00:00:00"),
        ("year", "2026-01-01 00:00:00"),
    ],
)
def test_a_period_begins(period: str, begins: str) -> None:
    found = scope("dispatch", period=period).partitions
    assert found is not None
    assert found.start("2026-11-18 06:55:12") == begins


def test_equal_tables_are_staged_alike() -> None:
    """What was staged for other partitions is of no use."""
    one, other = (scope("daily_event").partitions, scope("hourly_event").partitions)
    assert TableMap("t", "t", partitions=one) != TableMap("t", "t", partitions=other)
