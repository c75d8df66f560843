"""Generated capture returns to the quick way after a table has changed."""

from __future__ import annotations

from vedur import db as vdb

STALE = """
select count(*) from pg_trigger t join pg_proc p on p.oid = t.tgfoid
where t.tgrelid = 't'::regclass and p.proname like 'capture%%'
  and strpos(p.prosrc, vedur.capture_shape(t.tgrelid)) = 0
"""


def test_stale_captures_are_written_anew(db: vdb.Database) -> None:
    db.execute("create table t (id int primary key, a text)")
    db.call("pgq.create_queue", "q")
    row = db.call("vedur.create_capture", "q", "t", "_londiste_q")[0]
    assert row.ret_code == 200
    db.commit()
    assert db.value(STALE) == 0
    assert db.value("select vedur.refresh_stale_captures()") == 0
    db.execute("alter table t add column b numeric")
    assert db.value(STALE) == 1
    db.commit()
    db.call("londiste.periodic_maintenance")
    assert db.value(STALE) == 0
    assert db.value("select vedur.refresh_stale_captures()") == 0
    db.execute("insert into t values (1, 'x', 1.50)")
    table = db.value("select pgq.current_event_table('q')")
    assert '"b"' in db.value(f"select ev_data from {table}")
    db.rollback()
