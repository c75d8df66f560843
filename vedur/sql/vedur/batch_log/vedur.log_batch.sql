create or replace function vedur.log_batch(
    i_queue_name text,
    i_consumer_name text,
    i_prev_tick bigint,
    i_tick_id bigint,
    i_events bigint,
    i_stage_seconds double precision,
    i_merge_seconds double precision,
    i_commit_seconds double precision,
    i_finish_seconds double precision
)
returns bigint
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Remembers a batch that was applied, over the oldest of the last 200.
--
-- Parameters: queue and consumer; the ticks between which the batch lay; its events; what reading and
--     staging, merging, the commit and finishing on the provider took, in seconds
-- Returns: the number of the batch, counted from 1
-- Writes: vedur.batch_log
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _slots constant integer := 200;
    _nr bigint := 1;
    _total bigint := i_events;
    _last record;
begin
    select b.batch_nr, b.events_total into _last
    from vedur.batch_log b
    where b.queue_name = i_queue_name
    order by b.batch_nr desc
    limit 1;
    if found then
        _nr := _last.batch_nr + 1;
        _total := _last.events_total + i_events;
    end if;

    insert into vedur.batch_log as b (
        queue_name, slot, batch_nr, consumer_name, prev_tick, tick_id, events, events_total,
        stage_seconds, merge_seconds, commit_seconds, finish_seconds)
    values (
        i_queue_name, _nr % _slots, _nr, i_consumer_name, i_prev_tick, i_tick_id, i_events, _total,
        i_stage_seconds, i_merge_seconds, i_commit_seconds, i_finish_seconds)
    on conflict on constraint batch_log_pkey do update
    set batch_nr = excluded.batch_nr,
        consumer_name = excluded.consumer_name,
        prev_tick = excluded.prev_tick,
        tick_id = excluded.tick_id,
        events = excluded.events,
        events_total = excluded.events_total,
        stage_seconds = excluded.stage_seconds,
        merge_seconds = excluded.merge_seconds,
        commit_seconds = excluded.commit_seconds,
        finish_seconds = excluded.finish_seconds,
        finished_at = excluded.finished_at;
    return _nr;
end;
$$;
