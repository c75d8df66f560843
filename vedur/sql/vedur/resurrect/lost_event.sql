-- What only this node had when it was root: another one took over at a tick, and nobody ever read what is behind it. "resurrect" moves such events here
-- from the queue, in the transaction that makes this node a branch of the new root. Nothing removes them but an operator.
create table if not exists vedur.lost_event (
    id              bigint generated always as identity constraint lost_event_pkey primary key,
    queue_name      text not null,
    node_name       text not null,
    epoch           uuid,
    first_tick      bigint not null,
    tick_id         bigint,
    ev_id           bigint not null,
    ev_time         timestamptz not null,
    ev_txid         bigint not null,
    ev_type         text,
    ev_data         text,
    ev_extra1       text,
    ev_extra2       text,
    ev_extra3       text,
    ev_extra4       text,
    kept_at         timestamptz not null default clock_timestamp()
);
comment on table vedur.lost_event is
    'events that were written here and reached no other node before first_tick, at which another root took over; tick_id is null where no tick followed';
