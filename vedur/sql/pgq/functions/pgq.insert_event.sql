create or replace function pgq.insert_event(
    queue_name text, ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Inserts an event into a queue.
--
-- Parameters:
--     queue_name          name of the queue
--     ev_type, ev_data    content, meaning agreed between producer and consumers
--     ev_extra1..4        more content
-- Returns: ev_id
-- Writes: current event table of the queue
-- Raises: Queue name must not be NULL; No such queue; Insert into queue disallowed; Queue '...' allows max N events from one TX
-- ----------------------------------------------------------------------
begin
    return pgq.insert_event_raw(
        queue_name, null, null, null, null, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4);
end;
$$;

create or replace function pgq.insert_event(queue_name text, ev_type text, ev_data text)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Inserts an event without extra fields.
--
-- Parameters:
--     queue_name          name of the queue
--     ev_type, ev_data    content, meaning agreed between producer and consumers
-- Returns: ev_id
-- Writes: current event table of the queue
-- Raises: as pgq.insert_event(7)
-- ----------------------------------------------------------------------
begin
    return pgq.insert_event(queue_name, ev_type, ev_data, null, null, null, null);
end;
$$;
