-- Statements by which a branch passes on events and ticks. Words in braces are filled in by the code.

-- name: ticks
-- Ticks of a range on the provider, both ends included, with all that goes on to the next node.
select t.tick_id, t.tick_time::text as tick_time, t.tick_event_seq, t.tick_snapshot::text as tick_snapshot
from pgq.tick t
where t.tick_queue = (select q.queue_id from pgq.queue q where q.queue_name = %s)
    and t.tick_id between %s and %s
order by t.tick_id

-- name: raw_read
-- One slice of events as they are, on the provider; {number} is the slice number of the attempt. Events with an owner are
-- retries for one consumer of the provider and stay there. Binary, since nobody looks at a value on the way: the branch takes
-- 100,000 events so in 0.14 s of CPU, as text in 0.35 s. Types are named because binary values tell nothing of theirs.
copy (
    select {number}::bigint, ev_id::bigint, ev_time::timestamptz, ev_txid::bigint, ev_type::text, ev_extra1::text,
        ev_data::text, ev_extra2::text, ev_extra3::text, ev_extra4::text
    from {events}
    where {slice} and ev_owner is null
) to stdout (format binary)

-- name: raw_read_both
-- The same for a task that passes the rows on and makes the net changes of them, so in the order of events. Retries of another
-- consumer stay there; a retry that is this worker's own tells another number, since replication refuses it.
copy (
    select case when ev_owner is null and ev_retry is null then {number}::bigint else -1 end,
        ev_id::bigint, ev_time::timestamptz, ev_txid::bigint, ev_type::text, ev_extra1::text,
        ev_data::text, ev_extra2::text, ev_extra3::text, ev_extra4::text
    from {events}
    where {slice} and (ev_owner is null or ev_owner = {owner})
    order by ev_id
) to stdout (format binary)

-- name: raw_write
-- The same into the raw staging table of a slot.
copy {stage} (slice, ev_id, ev_time, ev_txid, ev_type, ev_extra1, ev_data, ev_extra2, ev_extra3, ev_extra4)
from stdin (format binary)

-- name: masked_read
-- The same for events that do not go on just as they are: as text, in their order.
copy (
    select (ev_owner is not null or ev_retry is not null)::text, ev_id, ev_time, ev_txid, ev_type, ev_extra1, ev_data, ev_extra2,
        ev_extra3, ev_extra4
    from {events}
    where {slice} and (ev_owner is null or ev_owner = {owner})
    order by ev_id
) to stdout

-- name: masked_write
-- The same into the raw staging table of a slot, as they go on.
copy {stage} (slice, ev_id, ev_time, ev_txid, ev_type, ev_extra1, ev_data, ev_extra2, ev_extra3, ev_extra4) from stdin

-- name: holds_events
-- Does the queue of this node, or the raw staging table of a slot, hold an event of a table? {events} is one of these.
select exists (
    select
    from {events} e
    where case when e.ev_extra1 <> '' and e.ev_type <> 'EXECUTE' then e.ev_extra1 else vedur.event_table(e.ev_type, e.ev_extra1) end = %s)

-- name: event_tables
-- Where events of a queue lie on this node: in its own tables, and in the raw staging tables of a branch.
select pgq.quote_fqname(q.queue_data_pfx) as events
from pgq.queue q
where q.queue_name = %(queue)s
union all
select pg_catalog.format('%%I.%%I', n.nspname, c.relname)
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'vedur_work' and c.relname like 'raw\_' || vedur.raw_stage_key(%(queue)s) || '\_%%'

-- name: create_stage
-- Makes the raw staging table of a slot where it is missing, and names it.
select vedur.create_raw_stage(%s, %s)

-- name: drop_stages
-- Drops the raw staging tables of a queue.
select vedur.drop_raw_stages(%s)

-- name: can_publish
-- Does this database have what a branch passes events on with?
select pg_catalog.to_regprocedure(
    'vedur.publish(text,integer,bigint[],bigint,bigint[],timestamptz[],bigint[],text[],bigint)'
) is not null
    and pg_catalog.to_regprocedure('vedur.note_passed_parts(text,bigint,text[],text[],bigint[])') is not null

-- name: source_abilities
-- Is this node a branch that can tell which tick its tables show? Can first copies leave marks here?
select pg_catalog.to_regprocedure('vedur.shown_tick(text)') is not null
    and exists (select 1 from pgq_node.node_info where queue_name = %s and node_type = 'branch') as shows_ticks,
    pg_catalog.to_regprocedure('vedur.mark_copies(text,integer[],text)') is not null as keeps_marks

-- name: mark_tick_copy
-- The copy of this consumer goes by the tick that the branch shows.
select vedur.mark_tick_copy(%s, %s)

-- name: mark_copies
-- On the node that tables are copied from, behind the snapshot.
select vedur.mark_copies(%s, %s::integer[], %s)

-- name: publish
-- Passes on a range of ticks with its events; in the transaction of the batch, after the merge.
select vedur.publish(
    %(queue)s, %(slot)s, %(slices)s::bigint[], %(events)s, %(ids)s::bigint[], %(times)s::timestamptz[],
    %(event_seqs)s::bigint[], %(snapshots)s::text[], %(watermark)s)

-- name: copies_by_snapshot
-- First copies of upstream's that are under way: ranges may have events of one tick only.
select * from vedur.copies_by_snapshot(%s)

-- name: shown_tick
-- On a branch that is copied from, in the snapshot that the copy reads: the tick that its tables show.
select tick_id, tick_time::text as tick_time, tick_event_seq, tick_snapshot from vedur.shown_tick(%s)

-- name: can_follow_settings
-- Does this database have what gives the queue of a branch its provider's settings?
select pg_catalog.to_regprocedure('vedur.follow_settings(text,integer,interval,interval,interval)') is not null

-- name: follow_settings
-- Give the queue of a branch its provider's settings; the names of those that were others.
select vedur.follow_settings(
    %(queue)s, %(ticker_max_count)s::integer, %(ticker_max_lag)s::interval, %(ticker_idle_period)s::interval,
    %(rotation_period)s::interval)

-- name: has_parts
-- Does this database tell which parts of tables its queue passes on?
select pg_catalog.to_regprocedure('vedur.passed_parts(text,bigint)') is not null

-- name: passed_parts
-- Parts of tables that the queue of a node passes on behind a tick, where it does not pass on all.
select table_name, condition, until_tick from vedur.passed_parts(%s, %s)

-- name: note_parts
-- On a branch: which parts the batch that begins at a tick has; in its transaction.
select vedur.note_passed_parts(%s, %s, %s::text[], %s::text[], %s::bigint[])

-- name: changed_tables
-- Which of some tables a staged batch has events of, in either format.
select distinct t.name
from (
    select case when ev_extra1 <> '' and ev_type <> 'EXECUTE' then ev_extra1 else vedur.event_table(ev_type, ev_extra1) end as name
    from only {stage}
    where slice = any (%(slices)s::bigint[])
) t
where t.name = any (%(tables)s::text[])

-- name: column_types
-- Columns of a table here with their types, as they are written.
select a.attname as name, pg_catalog.format_type(a.atttypid, a.atttypmod) as type
from pg_catalog.pg_attribute a
where a.attrelid = pg_catalog.to_regclass(%s) and a.attnum > 0 and not a.attisdropped and a.attname = any (%s)

-- name: leave_out
-- Takes events of other rows than those of a condition out of a staged batch, before it is published; {row} are the columns of
-- the key that the condition looks at, with their types here.
delete from only {stage} e
using (
    select s.slice, s.ev_id, vedur.event_key(s.ev_id, s.ev_type, s.ev_data, %(columns)s::text[]) as told
    from only {stage} s
    where s.slice = any (%(slices)s::bigint[])
        and case when s.ev_extra1 <> '' and s.ev_type <> 'EXECUTE' then s.ev_extra1 else vedur.event_table(s.ev_type, s.ev_extra1) end
            = %(table)s
    offset 0
) d
where e.slice = d.slice
    and e.ev_id = d.ev_id
    and d.told is not null
    and (select ({condition}) from pg_catalog.jsonb_to_record(d.told) as t ({row})) is not true
