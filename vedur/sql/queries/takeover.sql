-- Statements of a takeover (vedur/ops/takeover).

-- name: is_closed
-- Is a queue closed for writers?
select queue_disable_insert from pgq.queue where queue_name = %s

-- name: txid
-- The number of this transaction.
select pg_catalog.txid_current()

-- name: sees_others
-- May this role see the transactions of other roles?
select pg_catalog.pg_has_role(r.rolname, 'usage') from pg_catalog.pg_roles r where r.rolname = 'pg_read_all_stats'

-- name: writers
-- Transactions of this database that began before transaction %(txid)s was committed, as far as their snapshots and numbers tell, and all that
-- hold a lock on event tables of the queue by which events are written. Numbers have 32 bits: half of all of them are older.
with recursive tables (oid) as (
    select pg_catalog.to_regclass(pgq.quote_fqname(q.queue_data_pfx))::oid
    from pgq.queue q
    where q.queue_name = %(queue)s
    union all
    select i.inhrelid
    from tables t
    join pg_catalog.pg_inherits i on i.inhparent = t.oid
), locks as (
    select l.pid, pg_catalog.split_part(l.virtualtransaction, '/', 2) as xid
    from pg_catalog.pg_locks l
    where l.locktype = 'relation'
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
        and l.relation in (select t.oid from tables t)
        and l.mode = 'RowExclusiveLock'
        and l.granted
)
select a.pid, null::text as gid, coalesce(a.xact_start::text, '') as began, a.usename::text as role,
    coalesce(a.application_name, '') as application, coalesce(a.state, a.backend_type, '') as state,
    coalesce(extract(epoch from pg_catalog.clock_timestamp() - a.xact_start), 0)::float8 as seconds
from pg_catalog.pg_stat_activity a
where a.datname = pg_catalog.current_database()
    and a.pid <> pg_catalog.pg_backend_pid()
    and a.backend_type not in ('walsender', 'autovacuum worker', 'autovacuum launcher')
    and (
        (%(txid)s - a.backend_xid::text::bigint + 8589934592) %% 4294967296 < 2147483648
        or (%(txid)s - a.backend_xmin::text::bigint + 8589934592) %% 4294967296 < 2147483648
        or a.pid in (select l.pid from locks l)
    )
union all
select null::integer, p.gid, p.prepared::text, p.owner::text, '', 'prepared',
    extract(epoch from pg_catalog.clock_timestamp() - p.prepared)::float8
from pg_catalog.pg_prepared_xacts p
where p.database = pg_catalog.current_database()
    and (
        (%(txid)s - p.transaction::text::bigint + 8589934592) %% 4294967296 < 2147483648
        or p.transaction::text in (select l.xid from locks l where l.pid is null)
    )

-- name: events_behind
-- The first event of a queue that its tick has not seen, null if there is none.
select t.tick_snapshot::text as snapshot, pgq.quote_fqname(q.queue_data_pfx) as events
from pgq.tick t
join pgq.queue q on q.queue_id = t.tick_queue
where q.queue_name = %s and t.tick_id = %s

-- name: first_behind
-- The same, in the event tables; {events} is their parent. A range with two ends and a list, for which the server takes the
-- index though it has no statistics: writers wait for this.
select min(ev_id)
from {events}
where ev_owner is null
    and (
        ev_txid between pg_catalog.txid_snapshot_xmax(%(snapshot)s::txid_snapshot) and 9223372036854775807
        or ev_txid = any (array(select pg_catalog.txid_snapshot_xip(%(snapshot)s::txid_snapshot)))
    )

-- name: lock_timeout
-- How long statements of this transaction wait for locks.
select pg_catalog.set_config('lock_timeout', %s, true)

-- name: now_text
-- The clock of this server, for a note.
select pg_catalog.to_char(pg_catalog.clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')

-- name: reopen
-- Opens a queue where vedur.reopen_root is missing.
update pgq.queue
set queue_disable_insert = false, queue_external_ticker = false
where queue_name = %s

-- name: new_epoch
-- An identity for a reign.
select pg_catalog.gen_random_uuid()::text

-- name: can_promote
-- Can this database be made root by us, and may this role do that?
select coalesce(
    (
        select pg_catalog.has_function_privilege(f.oid, 'execute')
        from (select pg_catalog.to_regprocedure('vedur.promote(text,uuid,text,bigint)')::oid as oid) f
        where f.oid is not null
    ), false)

-- name: can_demote
-- May this role close the queue of this root?
select pg_catalog.has_function_privilege('pgq_node.demote_root(text,integer,text)', 'execute')

-- name: capture
-- Tables without a row trigger of the queue that is enabled, among those named.
select w.name
from pg_catalog.unnest(%(names)s::text[]) as w (name)
where not exists (
    select
    from pg_catalog.pg_trigger t
    where t.tgrelid = londiste.find_table_oid(w.name)
        and t.tgtype & 1 > 0
        and t.tgenabled in ('O', 'A')
        and t.tgname in (('_londiste_' || %(queue)s)::name, ('zzz__londiste_' || %(queue)s)::name))

-- name: sequences_of_tables
-- Sequences that give columns of tables their values, with the names of the tables.
with here as (
    select w.name, londiste.find_table_oid(w.name) as relid
    from pg_catalog.unnest(%s::text[]) as w (name)
), used as (
    select h.name, d.objid as seq
    from here h
    join pg_catalog.pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = h.relid
        and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
    union
    select h.name, d.refobjid
    from here h
    join pg_catalog.pg_attrdef f on f.adrelid = h.relid
    join pg_catalog.pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = f.oid and d.refclassid = 'pg_class'::regclass
)
select n.nspname || '.' || s.relname as name, u.name as table_name
from used u
join pg_catalog.pg_class s on s.oid = u.seq and s.relkind = 'S'
join pg_catalog.pg_namespace n on n.oid = s.relnamespace
order by 1, 2

-- name: ticker_sessions
-- How many sessions of this database look like those of a ticker.
select count(*)
from pg_catalog.pg_stat_activity a
where a.datname = pg_catalog.current_database()
    and a.pid <> pg_catalog.pg_backend_pid()
    and (a.application_name = 'pgqd' or a.query ~ 'pgq[.](ticker|maint_|version|force_tick)')

-- name: ticker_paused
-- Has an operator stopped the ticks of a queue?
select queue_ticker_paused from pgq.queue where queue_name = %s

-- name: seconds_since
-- How long ago a moment was that this server has written down.
select extract(epoch from pg_catalog.clock_timestamp() - %s::timestamptz)::float8

-- name: quarantined
-- Events in quarantine.
select count(*) from vedur.quarantine where queue_name = %s

-- name: sequence_value
-- What a sequence has given out.
select pgq.seq_getval(%s)

-- name: sequence_bounds
-- Where a sequence is, where it ends, and in which direction it counts.
select s.seqincrement > 0 as up, s.seqmin as low, s.seqmax as high, pgq.seq_getval(%s) as last
from pg_catalog.pg_sequence s
where s.seqrelid = pgq.quote_fqname(%s)::regclass

-- name: set_sequence
-- Lets a sequence go on behind a value.
select pg_catalog.setval(pgq.quote_fqname(%s)::regclass, %s)

-- name: columns_of_sequences
-- Columns of tables that hold numbers and get them from a sequence, as SQL writes them.
with here as (
    select distinct londiste.find_table_oid(w.name) as relid
    from pg_catalog.unnest(%s::text[]) as w (name)
), used as (
    select d.refobjid as relid, d.refobjsubid as attnum, d.objid as seq
    from here h
    join pg_catalog.pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = h.relid
        and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i') and d.refobjsubid > 0
    union
    select f.adrelid, f.adnum, d.refobjid
    from here h
    join pg_catalog.pg_attrdef f on f.adrelid = h.relid
    join pg_catalog.pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = f.oid and d.refclassid = 'pg_class'::regclass
)
select n.nspname || '.' || s.relname as name, u.relid::regclass::text as table, pg_catalog.quote_ident(a.attname) as column,
    q.seqincrement > 0 as up
from used u
join pg_catalog.pg_class s on s.oid = u.seq and s.relkind = 'S'
join pg_catalog.pg_namespace n on n.oid = s.relnamespace
join pg_catalog.pg_sequence q on q.seqrelid = s.oid
join pg_catalog.pg_attribute a on a.attrelid = u.relid and a.attnum = u.attnum
join pg_catalog.pg_type t on t.oid = a.atttypid
where coalesce(nullif(t.typbasetype, 0), t.oid) in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype)
order by 1, 2, 3

-- name: furthest
-- The greatest or the least whole number of a column that a bigint can hold.
select case when v between -9223372036854775808 and 9223372036854775807 then pg_catalog.trunc(v)::bigint end
from (select {which}({column})::numeric as v from {table}) m
