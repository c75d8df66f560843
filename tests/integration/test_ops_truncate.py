"""The owner of a table may truncate it, whatever rights on the queue that role has."""

from __future__ import annotations

from collections.abc import Callable

from tests.fixtures.pg import TestServer
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.db.conninfo import with_params
from vedur.node.info import NodeType
from vedur.ops.add_table import AddTable, add_table
from vedur.ops.create_node import create_node, plan_node
from vedur.ops.session import Session


def test_owner_truncates(oldest: TestServer, make_db_on: Callable[..., vdb.Database]) -> None:
    db = make_db_on(oldest, "ours", autocommit=True)
    role = "owner_" + str(db.value("select current_database()"))
    db.execute(f'create role "{role}" login')
    db.execute(f'create schema s authorization "{role}"')
    try:
        with vdb.connect(with_params(db.connstr, user=role), autocommit=True) as owner:
            owner.execute("create table s.t (id int primary key)")
            settings = LondisteSettings(
                db=db.connstr, queue_name="replika", job_name="src", config_file="/src.ini"
            )
            with Session(settings) as session:
                create_node(session, plan_node(session, NodeType.ROOT, "src", db.connstr))
                add_table(session, AddTable(tables=["s.t"]))
            owner.execute("insert into s.t values (1)")
            owner.execute("truncate s.t")
        rows = db.query("select ev_type, ev_data, ev_extra1 from pgq.event_1 order by ev_id")
        assert tuple(rows[-1]) == ("R", "", "s.t")
    finally:
        db.execute(f'drop owned by "{role}" cascade; drop role "{role}"')
