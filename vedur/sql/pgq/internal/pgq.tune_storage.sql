create or replace function pgq.tune_storage(i_queue_name text)
returns integer
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Sets the storage parameters of the event tables. Their rows are never updated or deleted, only truncated: full pages, no
-- vacuum.
--
-- Parameters:
--     i_queue_name    name of the queue
-- Returns: 1; 0 if there is no such queue; null for null
-- Writes: storage parameters of the event tables
-- Raises: insufficient_privilege for anyone but the owner
-- ----------------------------------------------------------------------
declare
    _queue pgq.queue%rowtype;
    _table text;
begin
    select * into _queue
    from pgq.queue
    where queue_name = i_queue_name;
    if not found then
        return 0;
    end if;
    for _nr in 0 .. _queue.queue_ntables - 1 loop
        _table := pgq.quote_fqname(_queue.queue_data_pfx || '_' || _nr);
        execute format('alter table %s set (fillfactor = 100, autovacuum_enabled = off, toast.autovacuum_enabled = off)', _table);
    end loop;
    return 1;
end;
$$;
