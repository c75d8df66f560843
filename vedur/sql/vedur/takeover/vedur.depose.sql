create or replace function vedur.depose(
    in i_queue_name text,
    in i_epoch uuid,
    in i_root_node text,
    in i_first_tick bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Closes the queue of a root that was replaced while it was away: nobody would ever get what is written here.
--
-- Parameters: i_queue_name - cascaded queue; i_epoch, i_root_node, i_first_tick - the reign that followed.
-- Returns: 200 closed; 201 it was before; 301 this node is not root; 404 no node here.
-- Writes: vedur.deposed, pgq.queue.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _new boolean;
begin
    select d.ret_code, d.ret_note into ret_code, ret_note from pgq_node.demote_root(i_queue_name, 1, null) d;
    if ret_code <> 200 then
        return;
    end if;
    insert into vedur.deposed (queue_name, epoch, root_node, first_tick)
    values (i_queue_name, i_epoch, i_root_node, i_first_tick)
    on conflict do nothing;
    _new := found;
    ret_code := case when _new then 200 else 201 end;
    ret_note := format('Queue "%s" is closed: its root is "%s"', i_queue_name, i_root_node);
end;
$$;
