create table if not exists vedur.quarantine (
    id              bigint generated always as identity constraint quarantine_pkey primary key,
    queue_name      text not null,
    consumer_name   text not null,
    prev_tick       bigint not null,
    tick_id         bigint not null,
    ev_id           bigint not null,
    ev_txid         bigint not null,
    ev_type         text not null,
    ev_data         text,
    ev_extra1       text,
    ev_extra2       text,
    ev_extra3       text,
    ev_extra4       text,
    table_name      text,
    dest_table      text,
    row_key         text,
    holds           text not null constraint quarantine_holds_check check (holds in ('row', 'table', 'nothing')),
    cause           text not null constraint quarantine_cause_check check (cause in ('error', 'held', 'skipped')),
    sqlstate        text,
    message         text,
    reason          text,
    decided_by      text,
    quarantined_at  timestamptz not null default now()
);
do $$
-- Only where it is missing: the statement locks its table against writers even if there is nothing to do.
begin
    if pg_catalog.to_regclass('vedur.quarantine_table_idx') is null then
        create index quarantine_table_idx on vedur.quarantine (queue_name, table_name, id);
    end if;
end
$$;
do $$
-- Only where it is missing: the statement locks its table against writers even if there is nothing to do.
begin
    if pg_catalog.to_regclass('vedur.quarantine_whole_idx') is null then
        create index quarantine_whole_idx on vedur.quarantine (queue_name, table_name) where holds = 'table';
    end if;
end
$$;
comment on table vedur.quarantine is 'events that were not applied here, in their order; while one is here, later events of what it holds (its row, its table) join it';
comment on column vedur.quarantine.cause is 'error: the server refused it; held: an earlier event holds its row or table; skipped: an operator said so';

create table if not exists vedur.quarantine_log (
    like vedur.quarantine,
    outcome         text not null constraint quarantine_log_outcome_check check (outcome in ('replayed', 'dropped', 'obsolete')),
    ended_reason    text,
    ended_by        text not null default session_user,
    ended_at        timestamptz not null default now(),
    constraint quarantine_log_pkey primary key (id)
);
comment on table vedur.quarantine_log is 'how events left the quarantine: every one that was ever there is either there or here';

-- Quarantined events in the shape of an event table, so that the pipeline of replay can read them. Their
-- number in the quarantine stands for the event's: it keeps its order when a node changes its provider.
create or replace view vedur.quarantine_events as
select q.id as ev_id,
    q.ev_txid,
    null::integer as ev_retry,
    null::integer as ev_owner,
    q.ev_type,
    q.ev_data,
    q.ev_extra1,
    q.ev_extra2,
    q.ev_extra3,
    q.ev_extra4,
    q.queue_name,
    q.table_name,
    q.row_key,
    q.tick_id
from vedur.quarantine as q;
comment on view vedur.quarantine_events is 'vedur.quarantine as an event table';
