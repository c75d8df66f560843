create or replace function pgq.insert_event(
    queue_name text, ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text
)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Inserts an event into a queue.
--
-- Who may write the event tables (the owner, pgq_admin) writes them with rights of their own. All others go through
-- pgq._insert_event, which runs as its owner and does not let them write events that are orders to other nodes. The
-- choice is made here, because a function that runs as its owner cannot know who called it.
--
-- Parameters:
--     queue_name          name of the queue
--     ev_type, ev_data    content, meaning agreed between producer and consumers
--     ev_extra1..4        more content
-- Returns: ev_id
-- Writes: current event table of the queue
-- Raises: Queue name must not be NULL; No such queue; Insert into queue disallowed; Queue '...' allows max N events from
--     one TX; insufficient_privilege, as pgq._insert_event
-- ----------------------------------------------------------------------
begin
    if pg_catalog.has_table_privilege('pgq.event_template'::pg_catalog.regclass, 'insert') then
        return pgq.insert_event_raw(
            queue_name, null, null, null, null, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4);
    end if;
    return pgq._insert_event(queue_name, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4);
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
