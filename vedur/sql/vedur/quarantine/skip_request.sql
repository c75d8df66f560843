create table if not exists vedur.skip_request (
    id              bigint generated always as identity constraint skip_request_pkey primary key,
    queue_name      text not null,
    consumer_name   text not null,
    ev_id           bigint,
    ev_txid         bigint,
    table_name      text,
    tick_id         bigint,
    reason          text not null,
    asked_by        text not null default session_user,
    asked_at        timestamptz not null default clock_timestamp(),
    done_at         timestamptz,
    outcome         text,
    constraint skip_request_one_check check ((ev_id is null) <> (tick_id is null))
);
do $$
-- Only where it is missing: the statement locks its table against writers even if there is nothing to do.
begin
    if pg_catalog.to_regclass('vedur.skip_request_open_idx') is null then
        create index skip_request_open_idx on vedur.skip_request (queue_name, consumer_name) where done_at is null;
    end if;
end
$$;
comment on table vedur.skip_request is 'events and ticks that an operator told a consumer to leave out; the worker keeps what it leaves out in vedur.quarantine';
