-- Statements of compare and repair (vedur/pipeline/compare, vedur/pipeline/repair, vedur/ops).
-- Words in braces are filled in by the code with quoted identifiers, expressions and numbers, never
-- with values of rows. No statement with braces takes parameters, except where marked.
-- A row as a whole is always `alias.*`: the bare alias would mean a column of that name where a
-- user's table has one. Columns of a user's table never stand without their alias.

-- name: begin_at
-- A transaction that sees what another one saw when it exported its snapshot.
-- The session's mark tells who it works for.
begin isolation level repeatable read read only;
set transaction snapshot '{snapshot}';
set application_name = '{mark}'

-- name: pin
-- Text of values must not depend on the server's settings; connect() pins the other half of them.
-- Slices are the parallelism, so that one server is not asked to give each slice several processes.
set timezone = 'UTC';
set xmlbinary = 'base64';
set search_path = pg_catalog, pg_temp;
set max_parallel_workers_per_gather = 0;
set jit = off;
set cursor_tuple_fraction = 1;
set statement_timeout = 0;
set idle_in_transaction_session_timeout = 0

-- name: pin_values
-- The part of it for sessions that write what such texts say: columns may call functions of users,
-- which need the search path as it is.
set timezone = 'UTC';
set xmlbinary = 'base64'

-- name: storage
-- The pieces a table is stored in, with their pages: itself, or the leaves of a partitioned one.
-- Other than heap tables (a foreign partition) have no pages to slice by.
with relation as (
    select pg_catalog.to_regclass(%s)::oid as oid
), leaf as (
    select p.relid::oid as oid
    from relation r, pg_catalog.pg_partition_tree(r.oid::regclass) p
    where p.isleaf
    union
    select r.oid
    from relation r
    join pg_catalog.pg_class c on c.oid = r.oid and c.relkind <> 'p'
)
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as name,
    case when c.relkind = 'r'
        then pg_catalog.pg_relation_size(c.oid)
            / pg_catalog.current_setting('block_size')::bigint
    end as pages,
    l.oid = (select r.oid from relation r) as itself
from leaf l
join pg_catalog.pg_class c on c.oid = l.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
order by 1

-- name: tree_storage
-- The same for a table with those that inherit from it, where a handler spreads rows over them.
with recursive tree as (
    select pg_catalog.to_regclass(%s)::oid as oid
    union
    select i.inhrelid
    from tree t
    join pg_catalog.pg_inherits i on i.inhparent = t.oid
)
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as name,
    case when c.relkind = 'r'
        then pg_catalog.pg_relation_size(c.oid)
            / pg_catalog.current_setting('block_size')::bigint
    end as pages
from tree t
join pg_catalog.pg_class c on c.oid = t.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
order by 1

-- name: staged_moments
-- The periods that rows of the stage are in.
select distinct date_trunc({period}, {moment})::text as moment from {rows} r order by 1

-- name: lock_timeout
-- How long statements wait for a lock.
select pg_catalog.current_setting('lock_timeout')

-- name: set_lock_timeout
-- Another such time for the rest of this transaction.
select pg_catalog.set_config('lock_timeout', %s, true)

-- name: page_range
-- The condition of one slice.
t.ctid >= '({low},0)'::pg_catalog.tid and t.ctid < '({high},0)'::pg_catalog.tid

-- name: page_tail
-- The condition of the last slice: without an end, whatever came to the table meanwhile.
t.ctid >= '({low},0)'::pg_catalog.tid

-- name: count
-- Rows of a slice, and those of them that are left out.
select pg_catalog.count(*) filter (where {inside}) as rows, null::bigint as a, null::bigint as b,
    null::bigint as c, null::bigint as d,
    pg_catalog.count(*) filter (where ({inside}) is not true) as left_out
from only {table} as t
where {scope}

-- name: sums
-- Rows of a slice and four sums that do not depend on their order: the halves of two 64-bit hashes
-- of the row's text. sum(int4) adds in bigint; sum(bigint) would add in numeric and be slow. The low
-- half of seed 0 is hashtext(), so column `a` is the checksum that Londiste prints.
-- `offset 0` keeps the planner from putting the row's text into the query eight times.
-- A row that is left out has no text.
select pg_catalog.count(h0) as rows,
    pg_catalog.sum((h0 << 32 >> 32)::int4) as a,
    pg_catalog.sum((h0 >> 32)::int4) as b,
    pg_catalog.sum((h1 << 32 >> 32)::int4) as c,
    pg_catalog.sum((h1 >> 32)::int4) as d,
    pg_catalog.count(*) - pg_catalog.count(h0) as left_out
from (
    select pg_catalog.hashtextextended(r, 0) as h0, pg_catalog.hashtextextended(r, {seed}) as h1
    from (
        select {row} as r
        from only {table} as t
        where {scope}
        offset 0
    ) x
    offset 0
) y

-- name: bucket_sums
-- The same by bucket of the key's hash; null is that of all rows that are left out.
select bucket, pg_catalog.count(h0) as rows,
    pg_catalog.sum((h0 << 32 >> 32)::int4) as a,
    pg_catalog.sum((h0 >> 32)::int4) as b,
    pg_catalog.sum((h1 << 32 >> 32)::int4) as c,
    pg_catalog.sum((h1 >> 32)::int4) as d,
    pg_catalog.count(*) - pg_catalog.count(h0) as left_out
from (
    select bucket,
        pg_catalog.hashtextextended(r, 0) as h0, pg_catalog.hashtextextended(r, {seed}) as h1
    from (
        select {bucket} as bucket, {row} as r
        from only {table} as t
        where {scope}
        offset 0
    ) x
    offset 0
) y
group by bucket

-- name: if_inside
-- Something of a row, and nothing of one that the condition of the table leaves out.
case when {inside} then {value} end

-- name: seed
-- The hash of no key.
5

-- name: key_hash
-- A hash of the key, or of one more part of it on top of those before.
pg_catalog.hashtextextended({text}, {seed})

-- name: key_part
-- What is hashed of a part of the key. Far cheaper than the text of a row; a target may have nulls
-- where the provider cannot; collations that are not deterministic would hash by their own rules.
coalesce(cast({part} as text), '') collate pg_catalog."C"

-- name: key_int_hash
-- The same for whole numbers, which need no text; equal numbers of different size have equal hashes.
pg_catalog.hashint8extended(coalesce(cast({part} as bigint), 0), {seed})

-- name: in_buckets
-- The condition that keeps rows of some buckets.
{bucket} = any ('{{{numbers}}}'::bigint[])

-- name: as_csv
-- A statement's rows as COPY writes them.
copy ({statement}) to stdout (format csv)

-- name: key_hashes
-- Key and hashes of each row of a slice.
select k as key, pg_catalog.hashtextextended(r, 0) as h0,
    pg_catalog.hashtextextended(r, {seed}) as h1
from (
    select {key} as k, {text} as r
    from only {table} as t
    where {condition}
    offset 0
) x

-- name: key_text
-- A key as a JSON array of texts: unambiguous, and readable outside the server.
pg_catalog.json_build_array({key})::text

-- name: rows_by_key
-- Rows that have one of the keys, all columns as text; one parameter for each key column.
select {key} as key, array[{columns}]::text[] as cells
from {table} as t
join rows from ({marks}) as k ({names}) on {match}
where {condition}

-- name: lock_shared
-- Keeps rewrites and truncates of a table away, and no one else. Takes no snapshot.
lock table {tables} in access share mode

-- name: export
-- The snapshot of this transaction: its name for others, and its text.
select pg_catalog.pg_export_snapshot() as name,
    pg_catalog.txid_current_snapshot()::text as snapshot

-- name: can_tick
-- Can a tick be made from a snapshot here, and does the queue take one?
select pg_catalog.to_regprocedure('vedur.write_moment(text,bigint,text)') is not null
    and pg_catalog.to_regprocedure('pgq._lock_ticker(integer,boolean)') is not null
    and exists (
        select 1 from pgq.queue
        where queue_name = %s and not queue_external_ticker and not queue_ticker_paused
    ) as answer

-- name: node_type
-- root, branch or leaf.
select node_type from pgq_node.node_info where queue_name = %s

-- name: branch_position
-- The tick that a node's own worker has applied: what a snapshot of it shows.
select l.last_tick_id
from pgq_node.node_info n
join pgq_node.local_state l on l.queue_name = n.queue_name and l.consumer_name = n.worker_name
where n.queue_name = %s

-- name: alive
-- Is this session, with its snapshot and its locks, still there?
select true

-- name: waiting
-- How many sessions wait for longer than a while for a lock on a table, or on a partition of it, that
-- conflicts with reading.
with relation as (
    select pg_catalog.to_regclass(%s)::oid as oid
), part as (
    select p.relid::oid as oid
    from relation r, pg_catalog.pg_partition_tree(r.oid::regclass) p
    union
    select r.oid
    from relation r
)
select pg_catalog.count(*)
from pg_catalog.pg_locks l
join part p on p.oid = l.relation
join pg_catalog.pg_database d on d.oid = l.database and d.datname = pg_catalog.current_database()
where l.locktype = 'relation' and not l.granted and l.mode = 'AccessExclusiveLock'
    and pg_catalog.clock_timestamp() - l.waitstart > %s::interval

-- name: make_way
-- End all sessions of one comparison; they belong to the same role as this one.
select pg_catalog.count(pg_catalog.pg_terminate_backend(pid))
from pg_catalog.pg_stat_activity
where application_name = %s and datname = pg_catalog.current_database()
    and usename = current_user

-- name: can_hold
-- Does the worker of this node honour holds?
select pg_catalog.to_regprocedure('vedur.set_hold(text,text,bigint,interval)') is not null as answer

-- name: begin_moment
-- Keeps all tickers of the queue out; the id that the next tick will have.
select vedur.begin_moment(%s)

-- name: begin_import
-- The transaction that writes a tick from the snapshot of another one.
begin isolation level repeatable read;
set transaction snapshot '{snapshot}'

-- name: write_moment
-- The tick itself.
select vedur.write_moment(%s, %s, %s)

-- name: end_moment
-- Tickers may go on.
select vedur.end_moment(%s)

-- name: set_hold
-- Ask the worker to stop at a tick.
select vedur.set_hold(%s, %s, %s, %s::interval)

-- name: drop_hold
-- The worker may go on.
select vedur.drop_hold(%s, %s, %s)

-- name: lag
-- How far a consumer is behind: time, ticks' events, and since when it was not seen.
select extract(epoch from c.lag)::float8 as lag, extract(epoch from c.last_seen)::float8 as last_seen,
    coalesce(c.pending_events, 0)::bigint as pending
from pgq.get_consumer_info(%s, %s) c

-- name: tables
-- The local tables of a queue and their states.
select table_name, coalesce(dest_table, table_name) as dest_table, merge_state, table_attrs
from londiste.table_info
where queue_name = %s and local
order by nr, table_name

-- name: force_tick
-- Upstream's way to have a tick soon.
select pgq.force_tick(%s)

-- name: ticker
-- A tick now, if one is due.
select pgq.ticker(%s)

-- name: lock_writers
-- Stops all writers of one table, as Londiste did.
lock table {table} in share mode

-- name: stage_keys
-- Keys that looked different, as text: they come from both sides.
create unlogged table {stage} (key text not null) with (autovacuum_enabled = off)

-- name: stage_rows
-- Rows of the provider in the types of the target.
create unlogged table {stage} with (autovacuum_enabled = off) as
select {columns} from {dest} as t where false

-- name: stage_drop
-- Staging goes.
drop table if exists {stage}

-- name: stage_copy_keys
-- Keys come in.
copy {stage} (key) from stdin

-- name: stage_copy_rows
-- Rows come in.
copy {stage} from stdin

-- name: stage_read_keys
-- One slice of the keys.
select distinct key
from {stage}
where pg_catalog.hashtextextended(key, 0) & 2147483647 >= {low}
    and pg_catalog.hashtextextended(key, 0) & 2147483647 < {high}

-- name: stage_analyze
-- So that the planner knows how much is staged.
analyze {stage}

-- name: read_rows
-- Rows of the provider by key, in COPY's text format; one parameter for each key column.
copy (
    select {columns}
    from {table} as t
    join rows from ({marks}) as k ({names}) on {match}
    where {condition}
) to stdout

-- name: named_row
-- A staged row under the names of the target, as JSON.
(select pg_catalog.row_to_json(x.*) from (select {columns}) x)

-- name: repair_lock
-- One repair of a table at a time.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('vedur.repair ' || %s, 0))

-- name: repair_delete
-- Rows that the provider does not have. Each removed row goes to the log.
with wanted as (
    select distinct {typed_key} from {keys} s
), gone as (
    delete from {only} {dest} as t
    using wanted k
    where {match}
        and ({condition}
        )
        and not exists (select 1 from {rows} r where {row_match})
    returning t.*
)
insert into vedur.repair_log
    (queue_name, table_name, dest_table, tick_id, action, row_key, old_row)
select {queue}, {name}, {dest_name}, {tick}, 'delete', {gone_key}, pg_catalog.row_to_json(g.*)
from gone g

-- name: repair_changed
-- Rows that exist on both sides and differ: logged before they change.
insert into vedur.repair_log
    (queue_name, table_name, dest_table, tick_id, action, row_key, old_row, new_row)
select {queue}, {name}, {dest_name}, {tick}, 'update', {key},
    pg_catalog.row_to_json(t.*), {new_row}
from {only} {dest} as t
join (select distinct on ({row_key}) * from {rows} r) r on {row_match}
where {differs}
    and ({condition}
    )

-- name: repair_update
-- And changed.
update {only} {dest} as t
set {sets}
from (select distinct on ({row_key}) * from {rows} r) r
where {row_match} and {differs}
    and ({condition}
    )

-- name: repair_take_out
-- The same in two halves, where an update could collide in passing with a row that is itself about
-- to change, or where the target has a key twice: first all old rows go, the insert brings them.
delete from {only} {dest} as t
using (select distinct on ({row_key}) * from {rows} r) r
where {row_match} and {differs}
    and ({condition}
    )

-- name: repair_move
-- The same for a table with columns of its own, whose rows go on to the tables that inherit from it: what only
-- the target has of a row stays with it. Of a key that is there twice, the row in the newer table counts.
with gone as (
    delete from {only} {dest} as t
    using (select distinct on ({row_key}) * from {rows} r) r
    where {row_match} and {differs}
        and ({condition}
        )
    returning t.ctid as vedur_place, t.tableoid as vedur_home, t.*
), kept as (
    select distinct on ({gone_columns}) g.*
    from gone g
    order by {gone_columns}, g.vedur_home desc, g.vedur_place desc
)
insert into {dest} as t ({columns}, {own}) overriding system value
select {values}, {gone_own}
from (select distinct on ({row_key}) * from {rows} r) r
join kept g on {gone_match}

-- name: repair_insert
-- Rows that the target lacks. Those that were taken out are in the log already.
with come as (
    insert into {dest} as t ({columns}) overriding system value
    select {values}
    from (select distinct on ({row_key}) * from {rows} r) r
    where not exists (select 1 from {only} {dest} as t where {row_match} and ({condition}
        ))
    returning t.*
)
insert into vedur.repair_log
    (queue_name, table_name, dest_table, tick_id, action, row_key, new_row)
select {queue}, {name}, {dest_name}, {tick}, 'insert', {come_key}, pg_catalog.row_to_json(c.*)
from come c
where not exists (
    select 1
    from vedur.repair_log l
    where l.queue_name = {queue} and l.table_name = {name} and l.tick_id = {tick}
        and l.action = 'update' and l.row_key = {come_key})

-- name: repair_counts
-- What this repair did, by action.
select action, pg_catalog.count(*) as n
from vedur.repair_log
where queue_name = %s and table_name = %s and tick_id = %s
group by action

-- name: begin_export
-- The transaction that will be read from; no snapshot is taken yet.
begin isolation level repeatable read read only

-- name: set_timeouts
-- Nothing may wait for ever while the ticker stands still; 0 is no limit.
select pg_catalog.set_config('lock_timeout', %s, false) as lock_timeout,
    pg_catalog.set_config('statement_timeout', %s, false) as statement_timeout

-- name: no_search_path
-- Names of types come out qualified.
set local search_path = pg_catalog, pg_temp

-- name: all_uniques
-- Column sets of everything that can make two rows collide; null for expressions.
select (
        select pg_catalog.array_agg(a.attname::text order by k.nr)
        from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        where k.nr <= i.indnkeyatts and i.indexprs is null and i.indpred is null
    ) as columns,
    i.indimmediate as checked  -- a deferrable one is not, in the role of a replica
from pg_catalog.pg_index i
where i.indrelid = pg_catalog.to_regclass(%s) and (i.indisunique or i.indisexclusion)

-- name: row_text
-- A row, or its key, as text.
row({columns})::text

-- name: row_text_utf8
-- The same where the two servers store text in different encodings: hashes are of bytes.
pg_catalog.encode(pg_catalog.convert_to(row({columns})::text, 'UTF8'), 'escape')

-- name: encoding
-- How this database stores text.
select pg_catalog.current_setting('server_encoding')

-- name: own_search_path
-- As the role or the database has it.
reset search_path

-- name: rounded
-- How many rows have values that the target's types cannot hold.
select {counts}
from {only} {table} as t
where {condition}

-- name: lost
-- The same of one column.
pg_catalog.count(*) filter (where {lost}) as n{number}

-- name: expected_lock
-- Nobody else stages what a table should hold while this session lives.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('vedur expected ' || %s, 0))

-- name: expected_stage
-- What a table should hold, in its own types, each row under the number of the attempt that brought it.
create unlogged table {stage} with (autovacuum_enabled = off) as
select null::bigint as {number}, {columns} from {dest} as t where false

-- name: expected_out
-- One slice of the provider's rows, for a handler.
copy (
    select {columns}
    from only {table} as t
    where {condition}
) to stdout

-- name: expected_in
-- What the handler makes of them, under the number of the attempt.
copy {stage} ({number}, {columns}) from stdin

-- name: expected_key
-- Rows are looked up by key when they are repaired.
create index on {stage} ({key})
