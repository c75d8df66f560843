create or replace function vedur.mark_copies(i_queue_name text, i_sub_ids integer[], i_mark text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Marks the subscriptions of first copies, on the node that they are copied from. Call it when the snapshot of the copies is
-- taken: whoever finds the mark later knows that this server has not lost what the snapshot saw. Marks of subscriptions that are
-- gone are removed.
--
-- Parameters:
--     i_queue_name    queue
--     i_sub_ids       pgq.subscription.sub_id of the consumers that hold the queue for the copies
--     i_mark          a text that nobody else uses
-- Returns: the number of subscriptions that are marked now
-- Writes: vedur.copy_mark
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _count integer;
begin
    -- Old ones only: another transaction may have marked a subscription that we do not see yet.
    delete from vedur.copy_mark m
    where m.marked_at < clock_timestamp() - '1 day'::interval
        and not exists (select 1 from pgq.subscription s where s.sub_id = m.sub_id);
    insert into vedur.copy_mark as m (sub_id, mark)
    select s.sub_id, i_mark
    from pgq.subscription s
    join pgq.queue q on q.queue_id = s.sub_queue
    where q.queue_name = i_queue_name and s.sub_id = any (i_sub_ids)
    on conflict (sub_id) do update
    set mark = excluded.mark, marked_at = clock_timestamp();
    get diagnostics _count = row_count;
    return _count;
end;
$$;
