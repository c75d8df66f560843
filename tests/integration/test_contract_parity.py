"""Our schemas against upstream's, catalog by catalog and call by call, on the same server version.

Upstream's extension `pgq` is the oracle: what it has, we have, under the same names. What only we
have is listed here, so that an addition is a decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.pg import Servers
from vedur import db as vdb
from vedur.errors import DatabaseError

#: Functions that upstream's pgq does not have.
EXTRA_FUNCTIONS = {
    "_check_tx_limit",
    "_due_ticks",
    "_insert_event",
    "_lock_ticker",
    "_notify_tick",
    "_write_tick",
}

ROLES = ("pgq_reader", "pgq_writer", "pgq_admin")

FUNCTIONS = """
    select p.proname as name, pg_get_function_arguments(p.oid) as arguments,
        pg_get_function_result(p.oid) as result, p.proisstrict as strict, p.prosecdef as definer
    from pg_proc p
    where p.pronamespace = 'pgq'::regnamespace
"""
COLUMNS = """
    select table_name, ordinal_position, column_name, data_type, udt_name, is_nullable,
        column_default
    from information_schema.columns
    where table_schema = 'pgq'
    order by 1, 2
"""
CONSTRAINTS = """
    select conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    from pg_constraint
    where connamespace = 'pgq'::regnamespace and contype <> 'n'
    order by 1, 2
"""
RELATIONS = """
    select c.relname, c.relkind, c.reloptions, i.indexdef
    from pg_class c
    left join pg_indexes i on i.schemaname = 'pgq' and i.indexname = c.relname
    where c.relnamespace = 'pgq'::regnamespace
    order by 1
"""
FUNCTION_RIGHTS = """
    select p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', r.name,
        case r.name
            when 'public' then exists (
                select 1
                from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                where a.grantee = 0)
            else has_function_privilege(r.name, p.oid, 'execute')
        end
    from pg_proc p
    cross join unnest(%s::text[]) as r (name)
    where p.pronamespace = 'pgq'::regnamespace and p.proname <> all (%s)
    order by 1, 2
"""
TABLE_RIGHTS = """
    select c.relname, r.name as role, t.name as deed,
        has_table_privilege(r.name, c.oid, t.name) as may
    from pg_class c
    cross join unnest(%s::text[]) as r (name)
    cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate']) as t (name)
    where c.relnamespace = 'pgq'::regnamespace and c.relkind = 'r'
    order by 1, 2, 3
"""
SEQUENCE_RIGHTS = """
    select c.relname, r.name as role, t.name as deed,
        has_sequence_privilege(r.name, c.oid, t.name) as may
    from pg_class c
    cross join unnest(%s::text[]) as r (name)
    cross join unnest(array['select', 'usage', 'update']) as t (name)
    where c.relnamespace = 'pgq'::regnamespace and c.relkind = 'S'
    order by 1, 2, 3
"""

Pair = tuple[vdb.Database, vdb.Database]


def _intended_first_seq(upstream: vdb.Database) -> None:
    """Intended difference: a tick of a queue without any event says 0 here and 1 there.

    1 is also what it says after the first event, which upstream's ticker therefore overlooks.
    Levelled out so that everything that follows from it is still compared.
    """
    assert upstream.query("select tick_event_seq from pgq.tick") == [(1,)]
    upstream.execute("update pgq.tick set tick_event_seq = 0")


@pytest.fixture
def pair(servers: Servers, make_db_on: Callable[..., vdb.Database], upstream_db: Any) -> Pair:
    """Ours and upstream's on the same server, each with one queue, in autocommit."""
    ours = make_db_on(servers.get(15), "ours", True)
    upstream_db.rollback()
    upstream_db.autocommit = True
    for db in (ours, upstream_db):
        db.value("select pgq.create_queue('q')")
    _intended_first_seq(upstream_db)
    return ours, upstream_db


def test_functions_have_the_same_names_arguments_and_results(pair: Pair) -> None:
    ours, theirs = ({tuple(row)[:4] for row in db.query(FUNCTIONS)} for db in pair)
    assert theirs - ours == set()
    assert {row[0] for row in ours - theirs} == EXTRA_FUNCTIONS


def test_what_upstream_runs_with_owner_rights_we_do_too(pair: Pair) -> None:
    # the trigger functions and insert_event_raw are C there and bypass permissions by other means
    ours, theirs = ({(r.name, r.arguments, r.definer) for r in db.query(FUNCTIONS)} for db in pair)
    # insert_event asks who calls and leaves the rest to _insert_event, which runs as its owner
    other = {row[0] for row in theirs - ours if not row[0].endswith("triga")}
    assert other == {"insert_event"}


@pytest.mark.parametrize("query", [COLUMNS, CONSTRAINTS, RELATIONS])
def test_tables_are_the_same(pair: Pair, query: str) -> None:
    ours, theirs = (db.query(query) for db in pair)
    # intended: whoever could name tables elsewhere would be the owner of the functions
    assert [row for row in ours if "queue_schema_check" not in row] == theirs


@pytest.mark.parametrize("query", [TABLE_RIGHTS, SEQUENCE_RIGHTS])
def test_roles_have_the_same_rights_on_tables(pair: Pair, query: str) -> None:
    ours, theirs = (set(db.query(query, [list(ROLES)])) for db in pair)
    # intended: pgq_admin may change settings of a queue, but not name its tables
    less = {("queue", "pgq_admin", deed, True) for deed in ("insert", "update", "delete")}
    assert theirs - ours == (less if query == TABLE_RIGHTS else set())
    assert {tuple(row)[:3] for row in ours - theirs} <= {row[:3] for row in less}


def test_roles_have_the_same_rights_on_functions(pair: Pair) -> None:
    args = [[*ROLES, "public"], list(EXTRA_FUNCTIONS)]
    ours, theirs = (db.query(FUNCTION_RIGHTS, args) for db in pair)
    assert ours == theirs


#: Calls with good and bad arguments; results and messages must agree. `{b}` is the open batch.
CALLS = [
    "select pgq.create_queue(null)",
    "select pgq.create_queue('q')",
    "select pgq.create_queue('other')",
    "select pgq.drop_queue('nope')",
    "select pgq.drop_queue(null)",
    "select pgq.drop_queue('nope', true)",
    "select pgq.set_queue_config('nope', 'ticker_max_lag', '3')",
    "select pgq.set_queue_config(null, 'ticker_max_lag', '3')",
    "select pgq.set_queue_config('q', null, '3')",
    "select pgq.set_queue_config('q', 'ticker_max_lag', 'abc')",
    "select pgq.set_queue_config('q', 'ticker_max_lag', '0')",
    "select pgq.set_queue_config('q', 'ticker_max_count', 'x')",
    "select pgq.set_queue_config('q', 'rotation_period', '1 hour')",
    "select pgq.set_queue_config('q', 'external_ticker', 'false')",
    "select pgq.set_queue_config('q', 'ticker_idle_period', '1 hour')",
    "select pgq.register_consumer('nope', 'c')",
    "select pgq.register_consumer(null, 'c')",
    "select pgq.register_consumer('q', null)",
    "select pgq.register_consumer('q', 'c')",
    "select pgq.register_consumer('q', 'c')",
    "select pgq.register_consumer_at('q', 'c', 99)",
    "select pgq.register_consumer_at('q', 'c', 1)",
    "select pgq.register_consumer_at('q', 'c2', null)",
    "select pgq.register_consumer_at('nope', 'c2', 1)",
    "select pgq.unregister_consumer('q', 'nope')",
    "select pgq.unregister_consumer('nope', 'c')",
    "select pgq.unregister_consumer('q', 'c2')",
    "select pgq.next_batch('q', 'nope')",
    "select pgq.next_batch('nope', 'c')",
    "select pgq.next_batch(null, 'c')",
    "select pgq.next_batch('q', null)",
    "select pgq.next_batch('q', 'c')",
    "select pgq.insert_event('nope', 't', 'd')",
    "select pgq.insert_event(null, 't', 'd')",
    "select pgq.insert_event('q', 't', 'd')",
    "select pgq.insert_event('q', 't', 'd', '1', '2', '3', '4')",
    "select pgq.insert_event_raw('q', 99, '2001-01-01', 7, 8, 't', 'd', '1', '2', '3', '4')",
    "select pgq.current_event_table('q')",
    "select pgq.current_event_table('nope')",
    "select pgq.current_event_table(null)",
    "update pgq.queue set queue_disable_insert = true where queue_name = 'q'",
    "select pgq.insert_event('q', 't', 'd')",
    "select pgq.current_event_table('q')",
    "set session_replication_role = 'replica'",
    "select pgq.insert_event('q', 't', 'replica')",
    "select pgq.current_event_table('q')",
    "set session_replication_role = 'local'",
    "select pgq.insert_event('q', 't', 'd')",
    "reset session_replication_role",
    "update pgq.queue set queue_disable_insert = false, queue_per_tx_limit = 2",
    "select pgq.insert_event('q', 't', 'd' || i) from generate_series(1, 3) i",
    "select pgq.insert_event('q', 't', 'd' || i) from generate_series(1, 2) i",
    "update pgq.queue set queue_per_tx_limit = 0",
    "select pgq.insert_event('q', 't', 'd')",
    "update pgq.queue set queue_per_tx_limit = -1",
    "select pgq.insert_event('q', 't', 'd')",
    "select pgq.ticker('nope')",
    "select pgq.ticker(null)",
    "select pgq.ticker('q')",
    "select pgq.ticker('q', 5, now(), 10)",
    "select pgq.ticker('nope', 5, now(), 10)",
    "select pgq.force_tick('nope')",
    "select pgq.force_tick(null)",
    "select pgq.force_tick('q')",
    "select pgq.seq_getval('pgq.event_1_id_seq')",
    "select pgq.ticker('q')",
    "select pgq.set_queue_config('q', 'ticker_paused', 'true')",
    "select pgq.ticker('q')",
    "select pgq.force_tick('q')",
    "select pgq.set_queue_config('q', 'ticker_paused', 'false')",
    # of "other", without any event, see _intended_first_seq
    "select tick_queue, tick_id, greatest(tick_event_seq, (tick_queue = 2)::int)"
    " from pgq.tick order by 1, 2",
    "select batch_id, cur_tick_id, prev_tick_id, cur_tick_event_seq, prev_tick_event_seq"
    " from pgq.next_batch_info('q', 'c')",
    "select pgq.next_batch('q', 'c')",
    "select * from pgq.batch_event_tables(77)",
    "select pgq.batch_event_sql(77)",
    "select ev_id, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"
    " from pgq.get_batch_events(1)",
    "select * from pgq.get_batch_events(77)",
    "select * from pgq.get_batch_events(null)",
    "select queue_name, consumer_name, prev_tick_id, tick_id, seq_start, seq_end"
    " from pgq.get_batch_info(1)",
    "select * from pgq.get_batch_info(77)",
    "select ev_id from pgq.get_batch_cursor(1, 'cur', 2)",
    "select ev_id from pgq.get_batch_cursor(1, 'cur', 10, 'ev_id > 5')",
    "select ev_id from pgq.get_batch_cursor(1, 'cur', 0)",
    "select ev_id from pgq.get_batch_cursor(1, null, 1)",
    "select ev_id from pgq.get_batch_cursor(77, 'cur', 1)",
    "select ev_id from pgq.get_batch_cursor(1, 'cur', 1, 'nope > 5')",
    "select pgq.event_retry(1, 2, 0)",
    "select pgq.event_retry(1, 2, 0)",
    "select pgq.event_retry(1, 3, now() + '1 hour')",
    "select pgq.event_retry(1, 4444, 0)",
    "select pgq.event_retry(77, 2, 0)",
    "select pgq.event_retry(77, 2, now())",
    "select pgq.event_retry(1, 1, null::integer)",
    "select pgq.batch_retry(77, 0)",
    "select pgq.batch_retry(1, 0)",
    "select pgq.batch_retry(1, 0)",
    "select pgq.event_retry_raw('nope', 'c', now(), 1, now(), 0, 't', 'd', '', '', '', '')",
    "select pgq.event_retry_raw('q', 'no', now(), 1, now(), 0, 't', 'd', '', '', '', '')",
    "select pgq.event_retry_raw('q', 'c', now(), 888, now(), 0, 't', 'd', '', '', '', '')",
    "select pgq.event_retry_raw('q', 'c', null, 889, now(), 0, 't', 'd', '', '', '', '')",
    "select ev_queue, ev_id, ev_txid, ev_owner, ev_retry, ev_type, ev_data, ev_extra1"
    " from pgq.retry_queue order by ev_id",
    "select pgq.maint_retry_events()",
    "select pgq.maint_retry_events()",
    "select ev_id, ev_owner, ev_retry, ev_type, ev_data from pgq.event_1 order by 1, 2, 3",
    "select pgq.finish_batch(1)",
    "select pgq.finish_batch(1)",
    "select queue_name, queue_ntables, queue_cur_table, queue_rotation_period,"
    " queue_external_ticker, queue_ticker_paused, queue_ticker_max_count, queue_ticker_max_lag,"
    " queue_ticker_idle_period, ev_new, last_tick_id from pgq.get_queue_info()",
    "select queue_name from pgq.get_queue_info('q')",
    "select queue_name from pgq.get_queue_info('nope')",
    "select queue_name, consumer_name, last_tick, current_batch, next_tick, pending_events"
    " from pgq.get_consumer_info()",
    "select consumer_name from pgq.get_consumer_info('q')",
    "select consumer_name from pgq.get_consumer_info('q', 'c')",
    "select consumer_name from pgq.get_consumer_info('q', 'nope')",
    "select * from pgq.maint_operations() where func_name not like 'londiste%'",
    "select * from pgq.maint_tables_to_vacuum()",
    "update pgq.queue set queue_rotation_period = '0', queue_extra_maint = '{a.b,c}'",
    "select * from pgq.maint_operations() where func_name not like 'londiste%'",
    "select pgq.maint_rotate_tables_step1('nope')",
    "select pgq.maint_rotate_tables_step1(null)",
    "select pgq.maint_rotate_tables_step1('q')",
    "select queue_cur_table, queue_switch_step2 is null from pgq.queue where queue_name = 'q'",
    "select pgq.maint_rotate_tables_step1('q')",
    "select * from pgq.maint_operations() where func_name not like 'londiste%'",
    "select pgq.maint_rotate_tables_step2()",
    "select queue_cur_table, queue_switch_step2 is null from pgq.queue where queue_name = 'q'",
    "select pgq.seq_getval('pgq.nope')",
    "select pgq.seq_setval('pgq.event_1_id_seq', 5)",
    "select pgq.seq_setval('pgq.event_1_id_seq', 500000)",
    "select pgq.seq_setval('pgq.nope', 5)",
    "select pgq.quote_fqname(n) from unnest(array['a', 'a.b', 'A.b.C d', '', '.a', null]) n",
    "select pgq.grant_perms('nope')",
    "select pgq.grant_perms('q')",
    "select pgq.tune_storage('nope')",
    "select pgq.tune_storage('q')",
    "select pgq.upgrade_schema()",
    "update pgq.queue set queue_external_ticker = true where queue_name = 'other'",
    "select pgq.ticker('other')",
    "select pgq.ticker('other', 50, now(), 1000)",
    "select pgq.ticker('other', 50, now(), 1000)",
    "select pgq.ticker('other', null, now(), 1000)",
    "select pgq.force_tick('other')",
    "select pgq.seq_getval(queue_tick_seq), pgq.seq_getval(queue_event_seq)"
    " from pgq.queue where queue_name = 'other'",
    "select pgq.drop_queue('q')",
    "select pgq.drop_queue('q', true)",
    "select * from pgq.consumer",
    "select relname from pg_class where relnamespace = 'pgq'::regnamespace"
    " and relname like 'event_1%'",
]


def _outcome(db: vdb.Database, call: str) -> object:
    """What a call gives: its rows, or its message. Constraint errors are C there and here."""
    try:
        with db.transaction():
            return [tuple(row) for row in db.query(call)]
    except DatabaseError as error:
        return re.sub(r"^(null value in column \S+).*", r"\1", str(error))


def test_calls_give_the_same_results_and_messages(pair: Pair) -> None:
    different = []
    for call in CALLS:
        ours, theirs = (_outcome(db, call) for db in pair)
        if ours != theirs:
            different.append((call, ours, theirs))
    assert different == []


def test_a_batch_of_a_wished_size_ends_at_the_same_tick(pair: Pair) -> None:
    """Thousands of combinations of ticks and wishes, asked of both."""
    for db in pair:
        db.execute("update pgq.queue set queue_ticker_paused = true")
        db.execute("delete from pgq.tick")
        # fixed "random" gaps: the same ticks on both sides
        db.execute("""
            insert into pgq.tick (tick_queue, tick_id, tick_time, tick_event_seq)
            select q.queue_id, i,
                '2020-01-01'::timestamptz + sum(i * 7919 % 13) over w * interval '1 second',
                sum(i * 104729 % 17) over w
            from pgq.queue q, generate_series(1, 40) i
            window w as (order by i)
        """)
    query = """
        select t.tick_id, c, s, f.*
        from pgq.tick t
        cross join unnest(array[null, 0, 1, 5, 10, 20, 50, 100, 200, 400]) c
        cross join unnest(array[null, 0, 1, 5, 10, 30, 60, 120, 240]) s
        cross join lateral pgq.find_tick_helper(
            t.tick_queue, t.tick_id, t.tick_time, t.tick_event_seq, c, make_interval(secs => s)) f
        order by 1, 2, 3
    """
    ours, theirs = (db.query(query) for db in pair)
    assert len(ours) == 3600
    assert ours == theirs


@pytest.mark.parametrize("lag", ["0 seconds", "1 hour", "100 days", "20000 days"])
@pytest.mark.parametrize("count", [None, 3, 1000])
def test_next_batch_custom_takes_the_same_batch(pair: Pair, lag: str, count: int | None) -> None:
    found = []
    for db in pair:
        db.call("pgq.register_consumer", "q", "c")
        db.execute("""
            insert into pgq.tick (tick_queue, tick_id, tick_time, tick_event_seq)
            select q.queue_id, i, now() - (30 - i) * interval '1 day', i * 5
            from pgq.queue q, generate_series(2, 25) i
        """)
        row = db.one(
            "select cur_tick_id, prev_tick_id, cur_tick_event_seq, prev_tick_event_seq"
            " from pgq.next_batch_custom('q', 'c', %s::interval, %s::integer, null)",
            [lag, count],
        )
        found.append(tuple(row))
    assert found[0] == found[1]
