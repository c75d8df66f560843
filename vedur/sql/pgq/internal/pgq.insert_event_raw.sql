create or replace function pgq.insert_event_raw(
    queue_name text,
    ev_id bigint,
    ev_time timestamptz,
    ev_owner integer,
    ev_retry integer,
    ev_type text,
    ev_data text,
    ev_extra1 text,
    ev_extra2 text,
    ev_extra3 text,
    ev_extra4 text
)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Inserts an event with all its fields, for retries and for copies of a queue.
--
-- Parameters:
--     queue_name              name of the queue
--     ev_id                   id; null: the next one. The sequence moves in both cases, or the ticker would not notice.
--     ev_time                 time; null: now
--     ev_owner                subscription that alone may see it; null: all
--     ev_retry                how often it was retried
--     ev_type .. ev_extra4    content
-- Returns: ev_id
-- Writes: current event table of the queue
-- Raises: Queue name must not be NULL; No such queue; Insert into queue disallowed; Queue '...' allows max N events from one TX
-- ----------------------------------------------------------------------
declare
    _queue record;
    _id bigint;
    _root text;
begin
    -- As pgq.quote_fqname does it; the call would cost a sixth of the whole.
    select q.queue_id, q.queue_name,
        pg_catalog.quote_ident(pg_catalog.split_part(q.queue_data_pfx, '.', 1)) || '.' || pg_catalog.quote_ident(
            pg_catalog.substr(q.queue_data_pfx, pg_catalog.strpos(q.queue_data_pfx, '.') + 1)
            || '_' || q.queue_cur_table::pg_catalog.text) as event_table,
        q.queue_disable_insert, q.queue_per_tx_limit, pg_catalog.nextval(q.queue_event_seq::regclass) as ev_id
    into _queue
    from pgq.queue q
    where q.queue_name = insert_event_raw.queue_name;
    if not found then
        if insert_event_raw.queue_name is null then
            raise exception 'Queue name must not be NULL';
        end if;
        raise exception 'No such queue';
    end if;
    if _queue.queue_disable_insert and current_setting('session_replication_role') <> 'replica' then
        if pg_catalog.to_regprocedure('vedur.where_to_write(text)') is not null then
            execute 'select vedur.where_to_write($1)' into _root using _queue.queue_name;
        end if;
        if _root is not null then
            raise exception 'Insert into queue disallowed' using hint = _root;
        end if;
        -- The node may have become the root since the first statement: whoever was told to write here must not be refused.
        if not exists (select from pgq.queue q where q.queue_name = _queue.queue_name and q.queue_disable_insert) then
            return pgq.insert_event_raw(
                queue_name, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4);
        end if;
        raise exception 'Insert into queue disallowed';
    end if;
    -- The limit is for producers: retries come back in maintenance, many in one transaction.
    if _queue.queue_per_tx_limit is not null and ev_owner is null then
        perform pgq._check_tx_limit(_queue.queue_id, _queue.queue_name, _queue.queue_per_tx_limit);
    end if;

    _id := coalesce(ev_id, _queue.ev_id);
    execute 'insert into ' || _queue.event_table
        || ' (ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
        || ' values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)'
    using _id, coalesce(ev_time, now()), ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4;
    return _id;
end;
$$;
