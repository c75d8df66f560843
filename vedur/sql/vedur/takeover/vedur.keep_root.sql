create or replace function vedur.keep_root(
    in i_queue_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Opens the queue of a root again whose successor is lost for good, and begins a reign: should the successor come back all the same, the two
-- histories leave each other at this tick, nobody reads across, and neither closes the other. The caller has made sure that the successor is gone.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: 200 done; 301 not root; 404 no node here.
-- Writes: pgq.queue, vedur.deposed; vedur.reign and its event.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _type text;
begin
    select n.node_type into _type from pgq_node.node_info n where n.queue_name = i_queue_name for update;
    if not found then
        ret_code := 404;
        ret_note := 'Node not initialized for queue: ' || i_queue_name;
        return;
    end if;
    if _type <> 'root' then
        ret_code := 301;
        ret_note := 'Node not root';
        return;
    end if;
    delete from vedur.deposed d where d.queue_name = i_queue_name;
    update pgq.queue q
    set queue_disable_insert = false,
        queue_external_ticker = false
    where q.queue_name = i_queue_name;
    perform vedur.begin_reign(i_queue_name, 'kept');
    ret_code := 200;
    ret_note := 'Writing enabled for: ' || i_queue_name;
end;
$$;
