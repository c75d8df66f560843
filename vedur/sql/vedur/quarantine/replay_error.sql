create table if not exists vedur.replay_error (
    queue_name      text not null,
    consumer_name   text not null,
    prev_tick       bigint not null,
    tick_id         bigint not null,
    ev_id           bigint,
    ev_txid         bigint,
    ev_type         text,
    table_name      text,
    dest_table      text,
    row_key         text,
    sqlstate        text,
    message         text not null,
    detail          text,
    attempts        integer not null default 1,
    first_seen      timestamptz not null default clock_timestamp(),
    last_seen       timestamptz not null default clock_timestamp(),
    constraint replay_error_pkey primary key (queue_name, consumer_name)
);
comment on table vedur.replay_error is 'what stops a consumer now: the batch (ticks after prev_tick up to tick_id) and, where it could be found, the event; gone when the batch goes through';
