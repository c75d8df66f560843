create or replace function vedur.note_published_parts(
    i_queue_name text,
    i_tick_id bigint,
    i_tables text[],
    i_conditions text[]
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Notes of which tables this branch passes on a part of the events, from a tick on; in the transaction that passes them on. What
-- is not named is passed on whole from then on.
--
-- Parameters:
--     i_queue_name    cascaded queue; this node is a branch of it
--     i_tick_id       tick behind which it is so
--     i_tables        tables, by their names in the set
--     i_conditions    the condition of each of them
-- Returns: number of entries that were begun or ended
-- Writes: vedur.published_part; entries of ticks that the queue does not have any more are removed
-- Raises: undefined_object for an unknown queue; invalid_parameter_value for lists of different length
-- ----------------------------------------------------------------------
declare
    _queue_id integer;
    _ended integer;
    _begun integer;
begin
    select queue_id into _queue_id from pgq.queue where queue_name = i_queue_name;
    if not found then
        raise exception 'queue "%" does not exist', i_queue_name using errcode = 'undefined_object';
    end if;
    if cardinality(i_tables) is distinct from cardinality(i_conditions) then
        raise exception 'there are % tables and % conditions', cardinality(i_tables), cardinality(i_conditions)
            using errcode = 'invalid_parameter_value';
    end if;
    delete from vedur.published_part p
    where not exists (select 1 from pgq.queue q where q.queue_id = p.queue_id)
        or (p.queue_id = _queue_id
            and p.until_tick <= (select min(t.tick_id) from pgq.tick t where t.tick_queue = _queue_id));
    update vedur.published_part p
    set until_tick = i_tick_id
    where p.queue_id = _queue_id and p.until_tick is null
        and not exists (
            select 1 from unnest(i_tables, i_conditions) as n (name, condition)
            where n.name = p.table_name and n.condition = p.condition);
    get diagnostics _ended = row_count;
    -- Two entries of one tick: the earlier one ended where it began.
    delete from vedur.published_part p where p.queue_id = _queue_id and p.until_tick <= p.after_tick;
    insert into vedur.published_part (queue_id, table_name, condition, after_tick)
    select _queue_id, n.name, n.condition, i_tick_id
    from unnest(i_tables, i_conditions) as n (name, condition)
    where not exists (
        select 1 from vedur.published_part p
        where p.queue_id = _queue_id and p.table_name = n.name and p.until_tick is null);
    get diagnostics _begun = row_count;
    return _ended + _begun;
end;
$$;
