create or replace function vedur.bar_epoch(
    in i_queue_name text,
    in i_epoch uuid,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Makes sure that this node will never become root under an epoch, although a command that prepares it may still be running somewhere. A node that
-- is root refuses, under whatever epoch: the root that it has replaced must stay closed.
--
-- Parameters: i_queue_name - cascaded queue; i_epoch - of a takeover that is undone.
-- Returns: 200 done; 404 no node here; 409 it is root, or was made root under that epoch.
-- Writes: vedur.barred_epoch.
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
    if _type = 'root' or exists (select from vedur.reign r where r.queue_name = i_queue_name and r.epoch = i_epoch) then
        ret_code := 409;
        ret_note := 'this node was made root already';
        return;
    end if;
    insert into vedur.barred_epoch (queue_name, epoch) values (i_queue_name, i_epoch) on conflict do nothing;
    ret_code := 200;
    ret_note := 'Epoch barred';
end;
$$;
