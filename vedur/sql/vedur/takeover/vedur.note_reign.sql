create or replace function vedur.note_reign(
    in i_queue_name text,
    in i_reign text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Stores a reign that an event has told of, in the transaction of its batch.
--
-- Parameters: i_queue_name - cascaded queue; i_reign - what vedur.begin_reign has written.
-- Returns: 200 stored; 201 known; 409 it does not continue the history of this node.
-- Writes: vedur.reign.
-- Raises: errors of the types for a text that is no reign.
-- ----------------------------------------------------------------------
declare
    _reign jsonb := i_reign::jsonb;
    _last vedur.reign%rowtype;
begin
    if exists (select from vedur.reign r where r.queue_name = i_queue_name and r.epoch = (_reign ->> 'epoch')::uuid) then
        ret_code := 201;
        ret_note := 'Reign is known';
        return;
    end if;
    select * into _last from vedur.reign r where r.queue_name = i_queue_name order by r.serial desc limit 1;
    if found and _last.epoch is distinct from (_reign ->> 'previous')::uuid then
        ret_code := 409;
        ret_note := format(
            'root "%s" (epoch %s) does not follow root "%s" (epoch %s), which this node knows as the last one',
            _reign ->> 'root', _reign ->> 'epoch', _last.root_node, _last.epoch);
        return;
    end if;
    insert into vedur.reign (queue_name, epoch, serial, root_node, first_tick, previous, kind)
    values (
        i_queue_name, (_reign ->> 'epoch')::uuid, (_reign ->> 'serial')::integer, _reign ->> 'root',
        (_reign ->> 'tick')::bigint, (_reign ->> 'previous')::uuid, _reign ->> 'kind');
    ret_code := 200;
    ret_note := format('Root of queue "%s" is "%s"', i_queue_name, _reign ->> 'root');
end;
$$;
