"""vedur.newest_tick: where a reign begins, asked by one statement."""

from __future__ import annotations

from vedur import db as vdb

QUEUE = "q"
SOURCE = "select prosrc from pg_proc where oid = %s::regproc"


def test_it_is_the_newest_tick_of_that_queue(db: vdb.Database) -> None:
    ask = "select vedur.newest_tick(%s)"
    assert db.value(ask, [QUEUE]) is None
    for name in (QUEUE, "other"):
        db.value("select pgq.create_queue(%s)", [name])
    db.execute("update pgq.queue set queue_external_ticker = true where queue_name = %s", [QUEUE])
    ticks = [db.value("select pgq.ticker(%s, %s, now(), 1)", [QUEUE, n]) for n in (7, 900, 1000)]
    assert db.value(ask, [QUEUE]) == max(ticks) == 1000
    assert db.value(ask, ["other"]) == 1


def test_who_begins_a_reign_asks_it(db: vdb.Database) -> None:
    for name in ("vedur.promote", "vedur.begin_reign"):
        source = db.value(SOURCE, [name])
        assert "vedur.newest_tick(i_queue_name)" in source
        assert "pgq.tick" not in source, name
