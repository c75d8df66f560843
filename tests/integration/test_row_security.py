"""Row level security stops us and never filters: on both sides, for every kind of statement."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.labs.first_copy import Lab as CopyLab
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.db.conninfo import with_params
from vedur.db.copy import pump
from vedur.errors import PrivilegeError
from vedur.ops import check as check_op
from vedur.ops.compare import NOT_PROVEN, CompareOptions, Status, compare
from vedur.ops.doctor.result import Verdict
from vedur.ops.doctor.tables import check_tables
from vedur.ops.session import Session

POLICY = "alter table {t} enable row level security; create policy half on {t} using (id % 2 = 0)"
HINT = "bypassrls"


@pytest.fixture
def role() -> Iterator[Callable[..., str]]:
    """role(db, grants): a role of the server that is no superuser, dropped at the end."""
    made: list[tuple[vdb.Database, str]] = []

    def make(db: vdb.Database, *grants: str) -> str:
        name = "rls_" + str(db.value("select current_database()"))
        if (db, name) not in made:
            db.execute(f'create role "{name}" login')
            made.append((db, name))
        for grant in grants:
            db.execute(f'grant {grant} to "{name}"')
        return name

    yield make
    for db, name in made:
        db.execute(f'drop owned by "{name}" cascade; drop role "{name}"')


def test_every_statement_is_refused(
    make_db: Callable[..., vdb.Database], role: Callable[..., str]
) -> None:
    db = make_db("bare", True)
    db.execute("create table t (id int primary key, v text); create table empty (like t)")
    db.execute("insert into t select i, 'v' from generate_series(1, 4) i;" + POLICY.format(t="t"))
    db.execute("create table parted (id int) partition by list (id)")
    db.execute("create table part partition of parted default;" + POLICY.format(t="part"))
    name = role(db, "all on t, empty, parted, part")
    db.execute(f'alter role "{name}" set row_security = on')
    mine = with_params(db.connstr, user=name)
    with vdb.connect(mine, autocommit=True) as plain:
        for text in (
            "select count(*) from t",
            "select count(*) from only t where ctid >= '(0,0)'",
            "insert into t values (5, 'w')",
            "insert into t values (6, 'w') on conflict do nothing",
            "update t set v = 'w'",
            "delete from t",
            "merge into t using empty e on e.id = t.id when matched then delete",
            "select count(*) from part",
        ):
            with pytest.raises(PrivilegeError, match=HINT) as caught:
                plain.execute(text)
            assert f'"{name}"' in caught.value.message, "the role is named"
        with pytest.raises(PrivilegeError, match=HINT), plain.copy_in("copy t from stdin") as copy:
            copy.write(b"7\tx\n")
        with pytest.raises(PrivilegeError, match=HINT), plain.copy_out("copy t to stdout") as out:
            list(out)
        with (
            vdb.connect(mine) as source,
            pytest.raises(PrivilegeError, match=HINT),
        ):
            pump(source, "copy t to stdout", plain, "copy empty from stdin")
        with (
            vdb.connect(db.connstr) as source,
            pytest.raises(PrivilegeError, match=HINT),
        ):
            pump(source, "copy empty to stdout", plain, "copy t from stdin")
    assert db.value("select count(*) from t") == 4
    # what the message says helps: to belong to the owner, unless the policies are forced
    db.execute(f'alter table t owner to "{name}"')
    with vdb.connect(mine, autocommit=True) as plain:
        assert plain.value("select count(*) from t") == 4
        plain.execute("alter table t force row level security")
        with pytest.raises(PrivilegeError, match=HINT):
            plain.value("select count(*) from t")
    db.execute(f'alter role "{name}" bypassrls')
    with vdb.connect(mine, autocommit=True) as plain:
        assert plain.value("select count(*) from t") == 4


@pytest.mark.spark
@pytest.mark.parametrize("policy", ["stop", "quarantine-row"])
def test_replay_stops_instead_of_passing_over_rows(
    make_leaf: Callable[..., Leaf],
    role: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    policy: str,
) -> None:
    """The merge is refused; so is the search for the event, which goes row by row."""
    leaf = make_leaf()
    leaf.pair.table("public.t", "create table t (id int primary key, v text)")
    name = role(
        leaf.leaf, "londiste_writer, pgq_admin", "select, insert, update, delete, truncate on t"
    )
    leaf.settings = dataclasses.replace(
        leaf.settings, db=with_params(leaf.leaf.connstr, user=name), on_error=policy
    )
    leaf.worker.settings = leaf.settings
    leaf.root.execute("insert into t select i, 'v' from generate_series(1, 4) i")
    leaf.catch_up()
    leaf.leaf.execute(POLICY.format(t="t"))
    leaf.root.execute("update t set v = 'w' where id < 3; delete from t where id > 2")
    leaf.pair.tick()
    caplog.set_level(logging.WARNING)
    assert leaf.worker._work_safely()
    assert any(HINT in r.getMessage() for r in caplog.records), caplog.text
    rows = "select array_agg(t::text order by id) from t"
    assert leaf.leaf.value(rows) == ["(1,v)", "(2,v)", "(3,v)", "(4,v)"]
    leaf.leaf.execute(f'alter role "{name}" bypassrls')
    leaf.catch_up()
    leaf.close()
    assert leaf.leaf.value(rows) == ["(1,w)", "(2,w)"]


@pytest.fixture
def lab(
    oldest: Any, newest: Any, make_db_on: Callable[..., vdb.Database], spark: Any
) -> Iterator[CopyLab]:
    made = CopyLab(make_db_on(oldest, autocommit=True), make_db_on(newest, autocommit=True), spark)
    yield made
    made.close()


@pytest.mark.spark
def test_a_copy_is_refused_and_compare_does_not_say_equal(
    lab: CopyLab, role: Callable[..., str]
) -> None:
    """The role that reads on the provider is one that policies hold for."""
    for db in (lab.root, lab.leaf):
        db.execute("create table t (id int primary key, v text)")
    lab.root.execute("insert into t select i, 'v' from generate_series(1, 10) i")
    lab.root.execute(POLICY.format(t="t"))
    name = role(
        lab.root,
        "londiste_reader",
        "select on t",
        "execute on function vedur.begin_moment(text), vedur.write_moment(text, bigint, text),"
        " vedur.end_moment(text)",
    )
    lab.leaf.execute(
        "update pgq_node.node_location set node_location = %s where node_name = 'root'",
        [with_params(lab.root.connstr, user=name)],
    )
    lab.add("public.t")
    lab.start()
    error = "select error from vedur.copy_progress"
    lab.wait_until(lambda: HINT in (lab.leaf.value(error) or ""))
    assert lab.states() != {"public.t": "ok"}
    settings = LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf")
    with Session(settings) as session:
        (found,) = check_op.check(session)
        assert any(HINT in line and "on the provider" in line for line in found.differences)
        info = session.require_node()
        bad = [f for f in check_tables(session, info) if f.verdict is not Verdict.OK]
        (line,) = [f for f in bad if f.check in ("policies", "structure")]
        assert (line.verdict, HINT in line.remedy) == (Verdict.FAIL, True)
        assert line.found == f'row level security on the provider holds for role "{name}": public.t'
    # the same half on both sides is not the same table
    lab.root.execute(f'alter role "{name}" bypassrls')
    lab.wait_ok()
    lab.root.execute(f'alter role "{name}" nobypassrls')
    with Session(settings) as session:
        seen = compare(session, CompareOptions(), lab.spark)
    assert [(t.dest_table, t.status, t.compared) for t in seen.tables] == [
        ("public.t", Status.NOT_PROVEN, False)
    ]
    assert HINT in seen.tables[0].reason and f'"{name}"' in seen.tables[0].reason
    assert seen.exit_code == NOT_PROVEN
    assert lab.leaf.value("select count(*) from t") == 10


INTERFERENCE = """
    create function swallow() returns trigger language plpgsql as 'begin return null; end';
    create trigger eats before update on t for each row execute function swallow();
    create trigger tells after update on t for each row execute function swallow();
    create trigger silent before update on t for each row execute function swallow();
    alter table t enable always trigger eats, enable replica trigger tells;
    create rule away as on delete to t do instead nothing;
    create rule quiet as on delete to t do instead nothing;
    alter table t enable always rule away
"""


def test_what_acts_on_replicated_changes_is_named(lab: CopyLab) -> None:
    for db in (lab.root, lab.leaf):
        db.execute("create table t (id int primary key, v text)")
    lab.add("public.t")
    lab.leaf.execute(INTERFERENCE)
    settings = LondisteSettings(db=lab.leaf.connstr, queue_name=QUEUE, job_name="leaf")
    with Session(settings) as session:
        (found,) = check_op.check(session)
        assert list(found.differences) == [
            'rule "away" here acts on replicated changes',
            'trigger "eats" here can change replicated rows',
        ]
        info = session.require_node()
        lines = [f for f in check_tables(session, info) if f.verdict is not Verdict.OK]
        assert [(f.verdict.value, f.check, f.found) for f in lines] == [
            ("fail", "policies", "rules that act on replicated changes: public.t (away)"),
            (
                "warn",
                "policies",
                "triggers that fire for replicated changes: public.t (eats, tells)",
            ),
        ]
        # what is no difference of structure has a remedy of its own, and is said once
        lab.leaf.execute("alter table t alter v type varchar(9)")
        (line,) = [f for f in check_tables(session, info) if f.check == "structure"]
        assert line.verdict is Verdict.WARN
        assert "away" not in line.found and "eats" not in line.found
        assert "varying(9)" in line.found
