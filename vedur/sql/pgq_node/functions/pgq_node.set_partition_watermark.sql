create or replace function pgq_node.set_partition_watermark(
    in i_combined_queue_name text,
    in i_part_queue_name text,
    in i_watermark bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- On a branch of a combined queue: move the position of a part's worker to the tick that the
-- combined root has reached, so that this node can take over the merge at any time.
--
-- Parameters: i_combined_queue_name - combined queue; i_part_queue_name - part that is merged
--             into it; i_watermark - tick of the part.
-- Returns: 200 moved; 201 no such part here, or the combined queue is not a branch here.
-- Writes: pgq_node.local_state.
-- Raises: not-null violation without tick.
-- ----------------------------------------------------------------------
declare
    _worker text;
begin
    select p.worker_name
    into _worker
    from pgq_node.node_info p
        join pgq_node.node_info c on c.queue_name = p.combined_queue
    where p.queue_name = i_part_queue_name
        and p.combined_queue = i_combined_queue_name
        and p.node_type = 'leaf'
        and c.node_type = 'branch';
    if not found then
        ret_code := 201;
        ret_note := 'Part-queue does not exist';
        return;
    end if;

    update pgq_node.local_state s
    set last_tick_id = i_watermark
    where s.queue_name = i_part_queue_name
        and s.consumer_name = _worker;
    if not found then
        ret_code := 401;
        ret_note := 'Worker of part-queue not registered: ' || i_part_queue_name || '/' || _worker;
        return;
    end if;

    ret_code := 200;
    ret_note := 'Ok';
end;
$$;
