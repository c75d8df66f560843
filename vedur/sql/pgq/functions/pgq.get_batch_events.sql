create or replace function pgq.get_batch_events(
    x_batch_id bigint,
    out ev_id bigint,
    out ev_time timestamptz,
    out ev_txid bigint,
    out ev_retry integer,
    out ev_type text,
    out ev_data text,
    out ev_extra1 text,
    out ev_extra2 text,
    out ev_extra3 text,
    out ev_extra4 text
)
returns setof record
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Returns all events of an open batch at once.
--
-- Parameters:
--     x_batch_id      open batch
-- Returns: events ordered by ev_id
-- Writes: nothing
-- Raises: batch not found
-- ----------------------------------------------------------------------
begin
    return query execute pgq.batch_event_sql(x_batch_id);
end;
$$;
