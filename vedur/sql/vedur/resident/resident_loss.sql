-- Why the worker of this node does without its resident task: one row for a queue while it does, none otherwise.
create table if not exists vedur.resident_loss (
    queue_name      text not null,
    reason          text not null,
    lost_at         timestamptz not null default clock_timestamp(),
    constraint resident_loss_pkey primary key (queue_name)
);
comment on table vedur.resident_loss is
    'queues whose live batches are ordinary Spark jobs for now, because the resident task was lost; status shows it';

do $$
-- Workers that are not superusers write here, observers read; roles may be missing.
begin
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_writer') then
        grant select, insert, update, delete on vedur.resident_loss to londiste_writer;
    end if;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_reader') then
        grant select on vedur.resident_loss to londiste_reader;
    end if;
end
$$;
