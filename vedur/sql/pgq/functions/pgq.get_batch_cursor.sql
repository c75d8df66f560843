create or replace function pgq.get_batch_cursor(
    i_batch_id bigint,
    i_cursor_name text,
    i_quick_limit integer,
    i_extra_where text,
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
-- Opens a cursor over the events of a batch and returns its first rows in the same round trip.
-- Runs with the rights of the caller, since the condition is the caller's own SQL.
--
-- Parameters:
--     i_batch_id      open batch
--     i_cursor_name   name of the cursor; it lives until the end of the transaction, and moves forward only
--     i_quick_limit   how many rows to return at once; 0 or null: none
--     i_extra_where   SQL condition on the event columns, put in as it is; null: all events
-- Returns: first events, ordered by ev_id; nothing, and no cursor, if i_cursor_name is null
-- Writes: nothing
-- Raises: batch not found; duplicate_cursor; the condition's own errors
-- ----------------------------------------------------------------------
declare
    _sql text := pgq.batch_event_sql(i_batch_id);
begin
    if i_cursor_name is null then
        return;
    end if;
    if i_extra_where is not null then
        _sql := pg_catalog.format('select * from (%s) as events where %s order by 1', _sql, i_extra_where);
    end if;
    execute pg_catalog.format('declare %I no scroll cursor for %s', i_cursor_name, _sql);
    if i_quick_limit > 0 then
        return query execute pg_catalog.format('fetch %s from %I', i_quick_limit, i_cursor_name);
    end if;
end;
$$;

create or replace function pgq.get_batch_cursor(
    i_batch_id bigint,
    i_cursor_name text,
    i_quick_limit integer,
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
strict
as $$
-- ----------------------------------------------------------------------
-- Opens a cursor over all events of a batch and returns its first rows.
--
-- Parameters:
--     i_batch_id      open batch
--     i_cursor_name   name of the cursor
--     i_quick_limit   how many rows to return at once
-- Returns: first events, ordered by ev_id; nothing if an argument is null
-- Writes: nothing
-- Raises: batch not found; duplicate_cursor
-- ----------------------------------------------------------------------
begin
    return query
    select e.ev_id, e.ev_time, e.ev_txid, e.ev_retry, e.ev_type, e.ev_data,
        e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4
    from pgq.get_batch_cursor(i_batch_id, i_cursor_name, i_quick_limit, null) e;
end;
$$;
