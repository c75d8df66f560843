create or replace function vedur.create_raw_stage(i_queue_name text, i_slot integer)
returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Makes the table where the events of a slot stand as the provider has them, until vedur.publish or vedur.publish_part passes them on. Unlogged: what
-- a crash empties is staged again, and both count. Every attempt of a task writes under a slice number of its own.
-- Empty it with TRUNCATE between batches; else only events that are not passed on are removed, in the transaction of their batch.
--
-- Parameters:
--     i_queue_name    queue of a branch, or of a leaf that is merged into a combined queue
--     i_slot          slot, 0 to 99
-- Returns: name of the table, quoted; columns slice, ev_id, ev_time, ev_txid, ev_type, ev_data, ev_extra1 .. ev_extra4
-- Writes: creates vedur_work.raw_<key>_<slot> (vedur.raw_stage_key), if it is missing
-- Raises: undefined_object for an unknown queue; invalid_parameter_value for another slot; insufficient_privilege if somebody
--     else has made a relation of that name
-- ----------------------------------------------------------------------
declare
    _key text := vedur.raw_stage_key(i_queue_name);
    _name text;
    _role text;
begin
    if _key is null then
        raise exception 'queue "%" does not exist', i_queue_name using errcode = 'undefined_object';
    end if;
    if i_slot is null or i_slot not between 0 and 99 then
        raise exception 'there is no slot %', i_slot using errcode = 'invalid_parameter_value';
    end if;
    _name := format('vedur_work.raw_%s_%s', _key, i_slot);
    if vedur.raw_stage(_key, i_slot) is not null then
        return _name;
    end if;
    execute format(
        'create unlogged table %s (slice bigint not null, ev_id bigint not null, ev_time timestamptz not null,'
        ' ev_txid bigint not null, ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text,'
        ' ev_extra4 text) with (autovacuum_enabled = off)', _name);
    execute format('comment on table %s is %L', _name, 'vedur raw staging');
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_roles where rolname = _role) then
            execute format('grant select, insert, delete, truncate on %s to %I', _name, _role);
        end if;
    end loop;
    return _name;
end;
$$;
