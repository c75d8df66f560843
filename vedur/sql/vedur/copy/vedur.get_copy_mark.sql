create or replace function vedur.get_copy_mark(i_queue_name text, i_consumer_name text)
returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Reads what vedur.mark_copies has written for the subscription of a first copy.
--
-- Parameters:
--     i_queue_name    queue
--     i_consumer_name consumer that holds the queue for the copy
-- Returns: the mark, null if there is none
-- Writes: nothing
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    return (
        select m.mark
        from pgq.subscription s
        join pgq.queue q on q.queue_id = s.sub_queue
        join pgq.consumer c on c.co_id = s.sub_consumer
        join vedur.copy_mark m on m.sub_id = s.sub_id
        where q.queue_name = i_queue_name and c.co_name = i_consumer_name
    );
end;
$$;
