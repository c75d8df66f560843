"""What somebody with one of our roles, or with a replicated table, could make of it: attacks.

Each test plays one attack with real statements and looks for its result. Roles are made inside of
the transaction that is rolled back, since they outlive a database.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from vedur import db as vdb
from vedur.errors import DatabaseError, PrivilegeError

pytestmark = pytest.mark.every_version

ORDERS = ["EXECUTE", "execute", " EXECUTE ", "pgq.location-info", "londiste.add-table"]


@pytest.fixture
def root(db: vdb.Database) -> vdb.Database:
    """The root of a set, and roles that have nothing but one of ours."""
    db.call("pgq_node.register_location", "q", "src", "dbname=src", False)
    db.call("pgq_node.create_node", "q", "root", "src", "src_w", None, None, None)
    db.execute("create table public.t (id int primary key, a text)")
    for role in ("pgq_reader", "pgq_writer", "pgq_admin", "londiste_reader", "londiste_writer"):
        db.execute(f"create role x_{role} in role {role}")
    db.execute("create role x_owner; grant usage, create on schema public to x_owner")
    return db


def refused(db: vdb.Database, text: str) -> None:
    """The server refuses a statement for want of a right; the transaction goes on."""
    with pytest.raises(PrivilegeError), db.transaction():
        db.execute(text)


def as_role(db: vdb.Database, role: str, text: str) -> None:
    """Run statements as a role."""
    db.execute(f"set local role {role}")
    db.execute(text)
    db.execute("reset role")


# -- pgq_admin -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["pgq_admin", "londiste_writer"])
def test_an_administrator_cannot_name_the_tables_of_a_queue(root: vdb.Database, role: str) -> None:
    """A table of its own with a trigger, named by pgq.queue: insert_event would run the trigger."""
    root.execute(f"set local role x_{role}")
    root.execute("""
        create table vedur_work.evil_0 (like pgq.event_template);
        create sequence vedur_work.evil_seq;
        create function vedur_work.evil() returns trigger language plpgsql as $$
        begin execute 'alter role ' || session_user || ' set work_mem = 65536'; return new; end $$;
        create trigger evil before insert on vedur_work.evil_0
            for each row execute function vedur_work.evil()
    """)
    columns = ("queue_data_pfx", "queue_event_seq", "queue_tick_seq", "queue_name", "queue_ntables")
    for column in (*columns, "queue_id", "queue_extra_maint"):
        refused(root, f"update pgq.queue set {column} = {column}")
    refused(
        root,
        "insert into pgq.queue (queue_name, queue_data_pfx, queue_event_seq, queue_tick_seq)"
        " values ('evil', 'vedur_work.evil', 'vedur_work.evil_seq', 'vedur_work.evil_seq')",
    )
    refused(root, "delete from pgq.queue")
    refused(root, "truncate pgq.queue cascade")
    root.execute("update pgq.queue set queue_ticker_paused = true, queue_cur_table = 1")
    root.rollback()


def test_a_queue_lives_in_its_schema_whoever_says_otherwise(root: vdb.Database) -> None:
    """The second lock: whoever came to write the row could still not name a foreign table."""
    columns = ("queue_data_pfx", "queue_event_seq", "queue_tick_seq")
    for column, name in product(columns, ("public.t", "t", "pgq.public.t")):
        with pytest.raises(DatabaseError, match="queue_schema_check"), root.transaction():
            root.execute(f"update pgq.queue set {column} = %s", [name])
    root.rollback()


def test_an_administrator_of_queues_cannot_leave_sql_for_the_worker(root: vdb.Database) -> None:
    """The worker runs what dropped_ddl and fkey_def say, and applies what is in quarantine."""
    root.execute("set local role x_pgq_admin")
    for table in ("table_info", "pending_fkeys", "seq_info", "applied_execute"):
        refused(root, f"insert into londiste.{table} default values")
    refused(root, "update londiste.table_info set dropped_ddl = 'x'")
    refused(root, "update londiste.pending_fkeys set fkey_def = 'x'")
    refused(root, "update londiste.applied_execute set execute_sql = 'x'")
    for table in ("quarantine", "quarantine_log", "skip_request", "replay_error"):
        refused(root, f"insert into vedur.{table} default values")
    # what the ticker's role does
    root.value("select londiste.periodic_maintenance()")
    assert root.one("select * from londiste.root_check_seqs('q')").ret_code == 100
    root.execute("reset role")
    root.execute("create sequence public.s; grant select on public.s to x_pgq_admin")
    assert root.one("select * from londiste.local_add_seq('q', 'public.s')").ret_code == 200
    root.execute("select nextval('public.s') from generate_series(1, 40000)")
    as_role(root, "x_pgq_admin", "select londiste.root_check_seqs('q')")
    sent = "select count(*) from pgq.event_template where ev_type = 'londiste.update-seq'"
    assert root.value(sent) >= 1
    root.rollback()


# -- pgq_writer ------------------------------------------------------------------------------------


def test_a_producer_cannot_give_orders_to_nodes(root: vdb.Database) -> None:
    sql = "alter role app superuser"
    root.call("pgq.create_queue", "plain")
    root.execute("set local role x_pgq_writer")
    for kind in ORDERS:
        for call in (
            f"select pgq.insert_event('q', '{kind}', '{sql}')",
            f"select pgq.insert_event('q', '{kind}', '{sql}', 'x.sql', null, null, null)",
            f"select pgq._insert_event('q', '{kind}', '{sql}', 'x.sql', null, null, null)",
            f"select pgq.insert_event_raw('q', 1, now(), null, null, '{kind}', '{sql}',"
            " null, null, null, null)",
            "insert into pgq.event_template (ev_id, ev_time) values (1, now())",
            "insert into pgq.event_1_0 (ev_id, ev_time) values (1, now())",
            "select pgq.event_retry_raw('q', '.global_watermark', now(), 1, now(), 1, 'EXECUTE',"
            " '', null, null, null, null)",
            f"select londiste.root_notify_change('q', '{kind}', '{sql}')",
            "select londiste.execute_finish('q', 'x.sql')",
            "select londiste.set_session_replication_role('replica', false)",
            "create table pgq.mine ()",
        ):
            refused(root, call)
    # events that mean nothing to nodes are what the role is for
    assert root.value("select pgq.insert_event('q', 'order-placed', 'x')") > 0
    assert root.value("select pgq.insert_event('plain', 'EXECUTE', 'x')") > 0
    root.rollback()


def test_whose_session_it_is_makes_no_difference(root: vdb.Database) -> None:
    """A superuser's session also runs functions of others as their owners: an index expression in
    REINDEX. So the question must be who calls, not who has logged in."""
    root.execute("alter role x_owner createrole; grant pgq_writer to x_owner")
    as_role(
        root,
        "x_owner",
        """
        create table public.bait (id int);
        create function public.pull(int) returns int language plpgsql immutable as $$
        begin perform pgq.insert_event('q', 'EXECUTE', 'x'); return 1; end $$;
        insert into public.bait values (1);
        create function public.definer() returns void language sql security definer
            as $$select pgq.insert_event('q', 'EXECUTE', 'x')$$
        """,
    )
    with pytest.raises(PrivilegeError, match="orders to the nodes"), root.transaction():
        root.execute("create index on public.bait (public.pull(id))")
    with pytest.raises(PrivilegeError, match="orders to the nodes"), root.transaction():
        root.execute("select public.definer()")
    assert root.value("select count(*) from pgq.event_template where ev_type = 'EXECUTE'") == 0
    root.rollback()


def test_those_who_run_nodes_give_orders_as_before(root: vdb.Database) -> None:
    for role in ("x_pgq_admin", "x_londiste_writer"):
        as_role(
            root, role, "select pgq.insert_event('q', 'pgq.tick-id', '1', 'q', null, null, null)"
        )
    as_role(root, "x_londiste_writer", "select londiste.root_notify_change('q', 'EXECUTE', 'x')")
    as_role(root, "x_pgq_admin", "select pgq_node.register_location('q', 'n', 'dbname=n', false)")
    rows = root.query("select ev_type from pgq.event_template order by ev_id desc limit 4")
    assert [r.ev_type for r in rows] == [
        "pgq.location-info",
        "EXECUTE",
        "pgq.tick-id",
        "pgq.tick-id",
    ]
    root.rollback()


# -- the owner, and a writer, of a replicated table ------------------------------------------------


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ([], "row"),
        ([], "bulk"),
        (["ignore=a"], "row"),
        (["ev_extra1='public.other name'"], "row"),
        (["pkey=id", "backup"], "row"),
    ],
)
def test_a_column_that_comes_later_cannot_choose_the_event(
    root: vdb.Database, words: list[str], mode: str
) -> None:
    """Columns _pgq_ev_* give the type and the text of events; capture writes as its owner."""
    got = root.one(
        "select * from vedur.create_capture('q', 'public.t', '_l', 'json', 'IUD', %s, %s::text[])",
        [mode, words],
    )
    assert got.ret_code == 200, got
    root.execute("alter table public.t owner to x_owner; set local role x_owner")
    root.execute("insert into public.t values (1, 'x')")
    root.execute("alter table public.t add column _pgq_ev_type text, add column _pgq_ev_data text")
    for change in (
        "insert into public.t values (2, 'x', 'EXECUTE', 'alter role x_owner superuser')",
        "update public.t set _pgq_ev_type = 'EXECUTE'",
        "delete from public.t",
    ):
        with pytest.raises(PrivilegeError, match="_pgq_ev_"), root.transaction():
            root.execute(change)
    root.execute("reset role")
    assert root.value("select count(*) from pgq.event_template where ev_type = 'EXECUTE'") == 0
    assert root.value("select count(*) from pgq.event_template") == 1
    root.rollback()


def test_columns_that_choose_the_event_do_so_as_the_writer(root: vdb.Database) -> None:
    root.execute(
        "alter table public.t add column _pgq_ev_type text, add column _pgq_ev_data text;"
        "alter table public.t owner to x_owner"
    )
    got = root.one("select * from vedur.create_capture('q', 'public.t', '_l', 'json', 'IUD')")
    assert (got.ret_code, "pgq.jsontriga" in got.ret_note) == (200, True)
    root.execute("set local role x_owner")
    refused(root, "insert into public.t values (1, 'x', 'note', 'y')")
    root.execute("reset role; grant pgq_writer to x_owner; set local role x_owner")
    root.execute("insert into public.t values (1, 'x', 'note', 'y')")
    with pytest.raises(PrivilegeError, match="orders to the nodes"), root.transaction():
        root.execute("insert into public.t values (2, 'x', 'EXECUTE', 'y')")
    root.rollback()


@pytest.mark.parametrize("mode", ["row", "bulk"])
def test_casts_of_a_type_are_not_run_by_capture(root: vdb.Database, mode: str) -> None:
    """The owner of a type makes its casts; a cast that capture used would run as its owner."""
    for cast in ("int4", "json", "text"):
        with suppress(_Undo), root.transaction():
            watch_a_cast(root, mode, cast)
            raise _Undo
    root.rollback()


class _Undo(Exception):
    """Takes a part of a test back."""


def watch_a_cast(root: vdb.Database, mode: str, cast: str) -> None:
    call = "select * from vedur.create_capture('q', 'public.t', '_l', 'json', 'IUD', %s)"
    assert root.one(call, [mode]).ret_code == 200
    root.execute("create table public.seen (who text); grant insert on public.seen to public")
    root.execute("alter table public.t owner to x_owner; set local role x_owner")
    value = {"int4": "1", "json": "'1'::json", "text": "'1'::text"}[cast]
    root.execute(f"""
        create type public.mine as (n int);
        create function public.peep(public.mine) returns {cast} language plpgsql immutable as $$
        begin insert into public.seen values (current_user); return {value}; end $$;
        alter function public.peep(public.mine) volatile;
        create cast (public.mine as {cast}) with function public.peep(public.mine) as implicit;
        drop table public.t
    """)
    root.execute("reset role")
    # as the table would be after "alter column id type public.mine"
    root.execute("create table public.t (id int primary key, a text)")
    assert root.one(call, [mode]).ret_code == 200
    root.execute("alter table public.t owner to x_owner; set local role x_owner")
    root.execute("""
        alter table public.t alter column id type public.mine using row(id)::public.mine;
        alter table public.t alter column a type public.mine using row(1)::public.mine
    """)
    for change in (
        "insert into public.t values (row(1), row(1)), (row(2), row(2))",
        "update public.t set a = row(3)",
        "update public.t set id = row((id).n + 5)",
        "delete from public.t",
    ):
        try:
            with root.transaction():
                root.execute(change)
        except PrivilegeError as error:
            assert mode == "bulk", error
    root.execute("reset role")
    assert root.value("select count(*) from public.seen where who <> 'x_owner'") == 0


WORDS = ([], ["ignore=a"], ["tgflags=Q"], ["backup"], ["pkey=id"], ["tgflags=L", "ignore=a"])


def test_writers_of_a_table_need_no_right_on_the_queue(root: vdb.Database) -> None:
    """As add-table makes them: plain, partitioned, renamed, with arguments that are no code."""
    root.execute("""
        create table public.parted (id int primary key, a text) partition by range (id);
        create table public.part1 partition of public.parted for values from (0) to (100);
        create role x_app;
        grant select, insert, update, delete, truncate on public.t, public.parted to x_app
    """)
    for table, words in product(("public.t", "public.parted"), WORDS):
        for name, dest in ((table, None), ("public.elsewhere", table)):
            write_as_an_application(root, words, table, name, dest)
    root.rollback()


def write_as_an_application(
    db: vdb.Database, words: list[str], table: str, name: str, dest: str | None
) -> None:
    add = "select * from londiste.local_add_table('q', %s, %s::text[], null, %s)"
    assert db.one(add, [name, words, dest]).ret_code == 200
    before = db.value("select count(*) from pgq.event_template")
    as_role(
        db,
        "x_app",
        f"insert into {table} values (1, 'x'); update {table} set a = 'y', id = 2;"
        f" update {table} set a = 'z', id = 2; delete from {table}; truncate {table}",
    )
    sent = db.query("select ev_extra1 from pgq.event_template order by ev_id offset %s", [before])
    assert len(sent) >= 5
    assert {row.ev_extra1 for row in sent} == {name}, (words, table)
    remove = "select * from londiste.local_remove_table('q', %s)"
    assert db.one(remove, [name]).ret_code == 200


def test_expressions_are_run_as_the_writer(root: vdb.Database) -> None:
    call = "select * from vedur.create_capture('q', 'public.t', '_l', 'json', 'IUD', 'row', %s)"
    for word in (
        "when=a is null",
        "ev_extra2=a",
        "ev_extra1='x' || a",
        "ev_extra1='\\' || a --'",
        "ev_extra1=e'x'",
    ):
        got = root.one(call, [[word]])
        assert (got.ret_code, "pgq.jsontriga" in got.ret_note) == (200, True), got
    root.rollback()


def test_functions_of_an_index_are_not_run_by_bulk_capture(root: vdb.Database) -> None:
    """The planner computes constant parts of an index condition as the role that reads."""
    root.execute("create table public.seen (who text); grant insert on public.seen to public")
    root.execute("alter table public.t owner to x_owner")
    call = "select * from vedur.create_capture('q', 'public.t', '_l', 'json', 'IUD', 'bulk')"
    assert root.one(call).ret_code == 200
    nested = (
        "insert into public.t values (1, 'x'), (2, 'x'); update public.t set a = 'y' where id = 2"
    )
    as_role(
        root,
        "x_owner",
        """
        create function public.note() returns void language plpgsql volatile as $$
        begin insert into public.seen values (current_user); end $$;
        create function public.peep(int) returns int language plpgsql immutable as $$
        begin perform public.note(); return 1; end $$;
        create function public.nest() returns trigger language plpgsql as $$
        begin
            if pg_trigger_depth() < 2 then update public.t set a = 'n' where id = 1; end if;
            return null;
        end $$;
        create trigger nest after update on public.t for each row execute function public.nest();
        """
        + nested,
    )
    assert root.value("select count(*) from pgq.event_template") > 2, "a plain table may nest"
    root.execute("set local role x_owner; delete from public.t")
    for hook in (
        "create index bad on public.t (a) where public.peep(1) > 0",
        "alter table public.t add constraint bad check (public.peep(1) > 0)",
        "create statistics bad on (a || public.peep(1)), id from public.t",
        "create table public.child () inherits (public.t)",
    ):
        with suppress(_Undo), root.transaction():
            root.execute(hook)
            with pytest.raises(PrivilegeError, match="capture cannot read table"):
                root.execute(nested)
            raise _Undo
        # the savepoint is gone with what was seen in it: look at what is left
        assert root.value("select session_user <> current_user")
    root.execute("reset role")
    assert root.value("select count(*) from public.seen where who <> 'x_owner'") == 0
    root.rollback()


HOSTILE = """
    create function public.note() returns void language plpgsql volatile as $$
    begin insert into public.seen values (current_user); end $$;
    create function public.peep(int) returns int language plpgsql immutable as $$
    begin perform public.note(); return 1; end $$;
    create function public.nest() returns trigger language plpgsql as $$
    begin
        if pg_trigger_depth() < 2 then update public.t set a = 'n' where id = new.id; end if;
        return null;
    end $$;
    create index bad on public.t (a) where public.peep(1) > 0;
"""


@pytest.mark.parametrize("deferred", ["", "deferrable initially deferred"])
def test_functions_of_an_index_are_not_run_by_row_capture(
    root: vdb.Database, deferred: str
) -> None:
    """It reads the table where a row is locked, changed from within, or its key deferred."""
    root.execute("create table public.seen (who text); grant insert on public.seen to public")
    root.execute(f"create table public.u (id int primary key {deferred}, a text)")
    root.execute("drop table public.t; alter table public.u rename to t")
    root.execute("alter table public.t owner to x_owner")
    call = "select * from vedur.create_capture('q', 'public.t', '_l')"
    assert root.one(call).ret_code == 200
    as_role(root, "x_owner", HOSTILE)
    nest = (
        "create trigger a_nest after update on public.t for each row execute function public.nest()"
    )
    root.execute("set local role x_owner")
    if deferred:
        with pytest.raises(PrivilegeError, match="capture cannot read table"), root.transaction():
            root.execute("insert into public.t values (1, 'x'); set constraints all immediate")
    else:
        upsert = "insert into public.t values (1, 'x') on conflict (id) do update set a = 'y'"
        root.execute(upsert)
        root.execute(upsert)
        assert root.value("select count(*) from public.t where a = 'y'") == 1
        root.execute(nest)
        with pytest.raises(PrivilegeError, match="capture cannot read table"), root.transaction():
            root.execute("update public.t set a = 'z'")
        root.execute("drop index public.bad")
        root.execute("update public.t set a = 'z'")  # nothing of the owner's is in the way now
    root.execute("reset role")
    assert root.value("select count(*) from public.seen where who <> 'x_owner'") == 0
    if not deferred:
        last = "select ev_data::jsonb ->> 'a' from pgq.event_template order by ev_id desc limit 1"
        assert root.value(last) == "n", "logged as it is, not as it was"
    root.rollback()


def test_an_operator_of_others_does_not_compare_keys(root: vdb.Database) -> None:
    """Anybody may make an operator for a type that he may use."""
    root.execute("create table public.seen (who text); grant insert on public.seen to public")
    root.execute("""
        create type public.mood as enum ('good', 'bad');
        create table public.m (id public.mood primary key deferrable initially deferred, a text)
    """)
    assert root.one("select * from vedur.create_capture('q', 'public.m', '_l')").ret_code == 200
    as_role(
        root,
        "x_owner",
        """
        create function public.same(public.mood, public.mood) returns bool language plpgsql as $$
        begin insert into public.seen values (current_user); return true; end $$;
        create operator public.= (
            leftarg = public.mood, rightarg = public.mood, function = public.same)
        """,
    )
    root.execute("insert into public.m values ('good', 'x'); set constraints all immediate")
    root.execute("update public.m set id = 'bad'; set constraints all immediate")
    assert root.value("select count(*) from public.seen") == 0
    root.rollback()


def test_an_operator_that_fits_better_is_not_run(root: vdb.Database) -> None:
    """Schema public is in everybody's path, and often others may create there."""
    root.execute("create table public.seen (who text); grant insert on public.seen to public")
    as_role(
        root,
        "x_owner",
        """
        create function public.cat(text, int) returns text language plpgsql as $$
        begin insert into public.seen values ('||'); return $1 || $2::text; end $$;
        create operator public.|| (leftarg = text, rightarg = int, function = public.cat);
        create function public.cat(text[], text) returns text[] language plpgsql as $$
        begin insert into public.seen values ('[]'); return array_append($1, $2); end $$;
        create operator public.|| (leftarg = text[], rightarg = text, function = public.cat);
        create function public.format(text, text) returns text language plpgsql as $$
        begin insert into public.seen values ('format'); return pg_catalog.format($1, $2); end $$;
        create function public.txid_visible_in_snapshot(bigint, text) returns boolean
            language plpgsql as $$
        begin insert into public.seen values ('visible'); return true; end $$
        """,
    )
    root.execute("set local search_path = public, pg_catalog")
    root.call("pgq.register_consumer", "q", "c")
    root.call("pgq.insert_event", "q", "a", "b")
    root.execute("update pgq.queue set queue_per_tx_limit = 100")
    root.call("pgq.insert_event", "q", "a", "b")
    root.execute("commit")
    try:
        root.execute("set search_path = public, pg_catalog")
        root.call("pgq.force_tick", "q")
        root.call("pgq.ticker")
        root.commit()
        batch = root.value("select pgq.next_batch('q', 'c')")
        root.call("pgq.get_batch_events", batch)
        root.call("pgq.get_batch_cursor", batch, "cur", 10)
        root.call("pgq.finish_batch", batch)
        root.call("pgq.current_event_table", "q")
        root.execute(
            "update pgq.queue set queue_switch_time = 'epoch', queue_rotation_period = '0'"
        )
        root.call("pgq.maint_rotate_tables_step1", "q")
        root.call("pgq.maint_operations")
        root.call("pgq_node.get_node_info", "q")
        root.call("pgq_node.maint_watermark", "q")
        root.commit()
        assert root.query("select * from public.seen") == []
    finally:
        root.rollback()
        names = root.query("select rolname from pg_roles where starts_with(rolname, 'x_')")
        listed = ", ".join(row.rolname for row in names)
        root.execute(f"drop owned by {listed} cascade; drop role {listed}; commit")
