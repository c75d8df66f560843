create or replace function vedur.capture_trigger_names(i_queue_name text)
returns name[]
language sql
immutable
as $$
-- Name the triggers that a replicated table and its partitions have for a queue.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: their names, in order of how they sort.
-- Writes: nothing.
    select array[
        '_londiste_' || i_queue_name,
        '_londiste_' || i_queue_name || '_truncate',
        '_londiste_' || i_queue_name || '_truncated',
        '_londiste_' || i_queue_name || '_truncating',
        'zzz__londiste_' || i_queue_name]::name[]
$$;
