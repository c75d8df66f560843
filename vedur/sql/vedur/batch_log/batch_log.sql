-- The last batches of each queue that this node applied, with the time that each stage took. A ring:
-- a slot is written again after 200 batches, so the table neither grows nor needs to be cleaned.
create table if not exists vedur.batch_log (
    queue_name      text not null,
    slot            integer not null,
    batch_nr        bigint not null,
    consumer_name   text not null,
    prev_tick       bigint not null,
    tick_id         bigint not null,
    events          bigint not null,
    events_total    bigint not null,
    stage_seconds   double precision not null,
    merge_seconds   double precision not null,
    commit_seconds  double precision not null,
    finish_seconds  double precision not null,
    finished_at     timestamptz not null default clock_timestamp(),
    constraint batch_log_pkey primary key (queue_name, slot)
) with (fillfactor = 50);
comment on table vedur.batch_log is
    'the last 200 batches with events of each queue: counts (events_total: since the log began), and seconds of reading and staging, merging, commit on this node, finish on the provider';

do $$
-- Workers that are not superusers write here, observers read; roles may be missing.
begin
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_writer') then
        grant select, insert, update on vedur.batch_log to londiste_writer;
    end if;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_reader') then
        grant select on vedur.batch_log to londiste_reader;
    end if;
end
$$;
