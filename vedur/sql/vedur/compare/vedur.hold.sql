create table if not exists vedur.hold (
    queue_name      text not null,
    consumer_name   text not null,
    tick_id         bigint not null,
    holder          text not null default pg_catalog.current_setting('application_name'),
    until           timestamptz not null,
    constraint hold_pkey primary key (queue_name, consumer_name, tick_id)
);
comment on table vedur.hold is 'ticks at which a consumer must end a batch and wait; a hold past its time counts for nothing';
