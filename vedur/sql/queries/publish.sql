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
    select {number}::bigint, ev_id::bigint, ev_time::timestamptz, ev_txid::bigint, ev_type::text, ev_data::text,
        ev_extra1::text, ev_extra2::text, ev_extra3::text, ev_extra4::text
    from {events}
    where {slice} and ev_owner is null
) to stdout (format binary)

-- name: raw_write
-- The same into the raw staging table of a slot.
copy {stage} (slice, ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
from stdin (format binary)

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

-- name: has_shown_tick
-- Is this node a branch that can tell which tick its tables show?
select pg_catalog.to_regprocedure('vedur.shown_tick(text)') is not null
    and exists (select 1 from pgq_node.node_info where queue_name = %s and node_type = 'branch')

-- name: mark_tick_copy
-- The copy of this consumer goes by the tick that the branch shows.
select vedur.mark_tick_copy(%s, %s)

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

-- name: types_in_part
-- What kinds of events a table has in a range of a branch that publishes a part of it.
select distinct ev_type
from only {raw}
where slice = any (%(slices)s) and ev_extra1 = %(table)s and ev_id > %(after)s and ev_id < %(until)s and ev_type is not null

-- name: row_before
-- Was the row of event p here before it? What the last event of the row in this range has left counts, then a truncate, then the
-- table, which is as it was before the range.
case
    when p.earlier is not null and (p.emptied is null or p.earlier > p.emptied) then p.was_here
    when p.emptied is not null then false
    else {here}
end

-- name: choose_part
-- Leaves of the raw events of a table those that are about rows of the part that this branch has, in the form in which the nodes
-- below need them. An update is told as an insert where its row was not here before, and as a delete, of the key alone, where the
-- row does not belong here any more. What it was in another part (ev_extra2) is not told. Without a condition's column nobody can
-- tell: lacking is the first such event.
with kinds as (
    select *
    from unnest(
        %(types)s::text[], %(ops)s::text[], %(inserts)s::text[], %(deletes)s::text[], %(encoded)s::boolean[], %(keys)s::text[]
    ) as k (ev_type, op, as_insert, as_delete, encoded, keys)
), event as materialized (
    select r.ctid as place, r.ev_id, r.ev_data, k.op, k.as_insert, k.as_delete, k.encoded, k.keys,
        case
            when k.op = 'R' then null
            when k.encoded then vedur.urldecode_row(r.ev_data)::json
            else r.ev_data::json
        end as data
    from only {raw} r
    join kinds k on k.ev_type = r.ev_type
    where r.slice = any (%(slices)s) and r.ev_extra1 = %(table)s and r.ev_id > %(after)s and r.ev_id < %(until)s
), seen as (
    select e.*, c.*,
        case when %(truncates)s then max(e.ev_id) filter (where e.op = 'R') over (order by e.ev_id) end as emptied
    from event e
    left join lateral (
        select case when e.op in ('I', 'U') then coalesce(({condition}
            ), false) else false end as belongs{values}
        from json_to_record(e.data) as {alias} ({columns})
    ) c on e.op <> 'R'
), placed as (
    select s.*, lag(s.ev_id) over w as earlier, lag(s.belongs) over w as was_here
    from seen s
    where s.op <> 'R'
    window w as (partition by {keys} order by s.ev_id)
), followed as (
    select p.*, {before} as before
    from placed p
), verdict as (
    select f.place, f.data, f.ev_data, f.as_insert, f.as_delete, f.encoded, f.keys,
        case
            when f.op = 'I' and f.belongs then 'as it is'
            when f.op = 'U' and f.belongs then case when f.before is false then 'insert' else 'as it is' end
            when f.op = 'U' and f.before is distinct from false then 'delete'
            when f.op = 'D' and f.before is distinct from false then 'as it is'
            else 'left out'
        end as told
    from followed f
    union all
    select e.place, e.data, e.ev_data, e.as_insert, e.as_delete, e.encoded, e.keys, 'left out'
    from event e
    where e.op = 'R' and not %(truncates)s
), dropped as (
    delete from only {raw} r
    using verdict v
    where r.ctid = v.place and v.told = 'left out'
    returning 1
), changed as (
    update only {raw} r
    set ev_type = case when v.told = 'insert' then v.as_insert else v.as_delete end,
        ev_data = case
            when v.told = 'insert' then r.ev_data
            when v.encoded then (
                select string_agg(n.part, '&')
                from unnest(string_to_array(v.ev_data, '&')) as n (part)
                where vedur.urldecode(split_part(n.part, '=', 1)) in (select json_array_elements_text(v.keys::json)))
            else (select json_object_agg(n.name, v.data -> n.name)::text from json_array_elements_text(v.keys::json) as n (name))
        end,
        ev_extra2 = case when v.told = 'insert' then null else r.ev_extra2 end,
        ev_extra3 = case when v.told = 'insert' then r.ev_extra3 else %(extra3)s end
    from verdict v
    where r.ctid = v.place and v.told in ('insert', 'delete')
    returning 1
)
select (select count(*) from dropped) as dropped, (select count(*) from changed) as changed,
    (
        select min(e.ev_id)
        from event e
        where e.op in ('I', 'U')
            and exists (select 1 from unnest(%(columns)s::text[]) as c (name) where e.data -> c.name is null)
    ) as lacking

-- name: tells_parts
-- Can this database tell of which tables its queue has a part?
select coalesce(
    has_function_privilege(to_regprocedure('vedur.get_published_parts(text,bigint,bigint)'), 'execute'), false)

-- name: parts
-- The tables of which the queue has a part of the events, between two ticks.
select table_name, condition from vedur.get_published_parts(%s, %s, %s)

-- name: note_parts
-- Notes of which tables a branch publishes a part, from a tick on.
select vedur.note_published_parts(%s, %s, %s::text[], %s::text[])

-- name: can_follow_settings
-- Does this database have what gives the queue of a branch its provider's settings?
select pg_catalog.to_regprocedure('vedur.follow_settings(text,integer,interval,interval,interval)') is not null

-- name: follow_settings
-- Give the queue of a branch its provider's settings; the names of those that were others.
select vedur.follow_settings(
    %(queue)s, %(ticker_max_count)s::integer, %(ticker_max_lag)s::interval, %(ticker_idle_period)s::interval,
    %(rotation_period)s::interval)
