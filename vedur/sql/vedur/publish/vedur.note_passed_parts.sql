create or replace function vedur.note_passed_parts(
    i_queue_name text,
    i_tick_id bigint,
    i_tables text[],
    i_conditions text[],
    i_until_ticks bigint[]
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Notes which events the batch that is being published lacks: those that this branch leaves out itself, and those that its
-- provider has left out. Belongs in the transaction of the batch, which holds the lock of the position.
--
-- Parameters:
--     i_queue_name    cascaded queue; this node is a branch of it
--     i_tick_id       the tick at which the batch begins
--     i_tables        tables, by their names in the set
--     i_conditions    of each: events of other rows are left out
--     i_until_ticks   of each: the last tick of which that is so, null while it goes on
-- Returns: how many lines are others now
-- Writes: vedur.passed_part. What is not among the parameters ends with i_tick_id at the latest. Lines that no tick of the queue needs any more
--     are deleted, and those of queues that are gone.
-- Raises: undefined_object for an unknown queue; invalid_parameter_value for arrays of several lengths, or with nulls
-- ----------------------------------------------------------------------
declare
    _queue_id integer;
    _count integer;
    _changed integer := 0;
begin
    select queue_id into _queue_id from pgq.queue where queue_name = i_queue_name;
    if not found then
        raise exception 'queue "%" does not exist', i_queue_name using errcode = 'undefined_object';
    end if;
    if i_tick_id is null
        or cardinality(i_tables) is distinct from cardinality(i_conditions)
        or cardinality(i_tables) is distinct from cardinality(i_until_ticks)
        or array_position(i_tables || i_conditions, null) is not null
    then
        raise exception 'these are no parts of tables: %, %, %', i_tables, i_conditions, i_until_ticks
            using errcode = 'invalid_parameter_value';
    end if;
    if cardinality(i_tables) = 0 and not exists (select from vedur.passed_part p where p.queue_id = _queue_id) then
        return 0;
    end if;

    -- What ended with a later tick ended there: a provider's line tells less than one that was noted for events that are here.
    with wanted as (
        select w.table_name, w.condition,
            case when bool_or(w.until_tick is null) then null else max(w.until_tick) end as until_tick
        from unnest(i_tables, i_conditions, i_until_ticks) as w (table_name, condition, until_tick)
        group by 1, 2
    )
    update vedur.passed_part p
    set until_tick = n.until_tick
    from (
        select o.ctid as place, o.until_tick as was,
            case
                -- later only where ticks come again: the set went on at an earlier one after a root was lost
                when w.table_name is null then least(o.until_tick, i_tick_id)
                when w.until_tick is not null then greatest(o.until_tick, w.until_tick)
            end as until_tick
        from vedur.passed_part o
        left join wanted w on w.table_name = o.table_name and w.condition = o.condition
        where o.queue_id = _queue_id
    ) n
    where p.ctid = n.place and n.until_tick is distinct from n.was;
    get diagnostics _count = row_count;
    _changed := _changed + _count;

    insert into vedur.passed_part (queue_id, table_name, condition, until_tick)
    select _queue_id, w.table_name, w.condition,
        case when bool_or(w.until_tick is null) then null else max(w.until_tick) end
    from unnest(i_tables, i_conditions, i_until_ticks) as w (table_name, condition, until_tick)
    where not exists (
        select
        from vedur.passed_part p
        where p.queue_id = _queue_id and p.table_name = w.table_name and p.condition = w.condition)
    group by w.table_name, w.condition;
    get diagnostics _count = row_count;
    _changed := _changed + _count;

    delete from vedur.passed_part p
    where p.queue_id = _queue_id
        and p.until_tick <= (select t.tick_id from pgq.tick t where t.tick_queue = _queue_id order by t.tick_id limit 1)
        or not exists (select from pgq.queue q where q.queue_id = p.queue_id);
    get diagnostics _count = row_count;
    return _changed + _count;
end;
$$;
