"""Options of the Spark data source: what is taken, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from vedur.errors import ConfigError, UsageError
from vedur.pipeline.source.options import OPTIONS, read_options

BASE = {"url": "host=db1 dbname=shop", "subscribe": "replika"}


def options(use: Any = "stream", **more: str) -> Any:
    return read_options({**BASE, **more}, use)


def test_what_is_left_out() -> None:
    got = options("batch")
    assert got.connstr == "host=db1 dbname=shop"
    assert (got.queue, got.table, got.start, got.end) == ("replika", None, None, "latest")
    assert got.fail_on_loss is True
    assert got.partitions == 8


def test_names_in_any_case_and_by_their_other_names() -> None:
    got = read_options(
        {
            "URL": "dbname=shop",
            "queue": "q",
            "DBTABLE": "orders",
            "startingoffsets": "12",
            "maxOffsetsPerTrigger": "500",
            "consumername": "lake",
            "failondataloss": "FALSE",
        },
        "stream",
    )
    assert (got.queue, got.table, got.start, got.max_events) == ("q", "public.orders", 12, 500)
    assert (got.consumer, got.fail_on_loss) == ("lake", False)


@pytest.mark.parametrize(
    "url",
    [
        "host=db1 port=5433 dbname=shop",
        "postgresql://db1:5433/shop",
        "jdbc:postgresql://db1:5433/shop",
    ],
)
def test_forms_of_the_address(url: str) -> None:
    from vedur.db.conninfo import parse

    got = read_options({"url": url, "subscribe": "q", "user": "spark", "password": "p w'"}, "batch")
    assert parse(got.connstr) == {
        "host": "db1",
        "port": "5433",
        "dbname": "shop",
        "user": "spark",
        "password": "p w'",
    }


def test_the_connect_string_is_not_shown() -> None:
    got = options(password="swordfish")
    assert "swordfish" in got.connstr
    assert "swordfish" not in repr(got)


@pytest.mark.parametrize("text,tick", [("7", 7), ('{"tick": 7}', 7), (" 0 ", 0)])
def test_ticks(text: str, tick: int) -> None:
    assert options(startingOffsets=text).start == tick


@pytest.mark.parametrize(
    "use,more,words",
    [
        ("batch", {"startingOffset": "1"}, 'did you mean "startingoffsets"'),
        ("batch", {"zzz": "1"}, "known are url, user"),
        ("batch", {"consumerName": "lake"}, "is for a stream (spark.readStream)"),
        ("stream", {"endingOffsets": "latest"}, "is for a batch (spark.read)"),
        ("batch", {"queue": "q"}, 'options "subscribe" and "queue" mean the same'),
        ("batch", {"startingOffsets": "first"}, "write earliest, latest or the number of a tick"),
        ("batch", {"startingOffsets": "-1"}, "write earliest, latest or the number of a tick"),
        ("batch", {"startingOffsets": "true"}, "write earliest, latest or the number of a tick"),
        ("batch", {"endingOffsets": "earliest"}, "write latest or a tick"),
        ("stream", {"maxEventsPerTrigger": "0"}, "write a whole number of 1 or more"),
        ("stream", {"failOnDataLoss": "yes"}, "write true or false"),
        ("batch", {"columnPrefix": "c_"}, 'needs "table"'),
        ("batch", {"url": ""}, 'option "url" is missing'),
        ("batch", {"subscribe": ""}, 'option "subscribe" is missing'),
    ],
)
def test_refusals(use: Any, more: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        options(use, **more)
    assert words.lower() in str(caught.value).lower()


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError, match="cannot be parsed"):
        options("batch", url="not a connect string")


def test_what_spark_adds_is_no_error() -> None:
    assert options("batch", path="/x", __internal="1").queue == "replika"


def test_the_schema_is_asked_for_before_the_kind_is_known() -> None:
    assert options("both", endingOffsets="5", consumerName="lake").end == 5


def test_option_names_are_not_claimed_twice() -> None:
    names = [n.lower() for o in OPTIONS for n in (o.name, *o.also)]
    assert len(names) == len(set(names))
