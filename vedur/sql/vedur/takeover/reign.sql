-- The reigns of a set: the time in which one node is root. Every reign has an identity, its epoch: two nodes that were made root independently write
-- ticks of the same numbers, and only the epoch tells whose they are. All nodes of ours have the whole history; a set without any row has no epoch.
create table if not exists vedur.reign (
    queue_name      text not null,
    epoch           uuid not null,
    serial          integer not null,
    root_node       text not null,
    first_tick      bigint not null,
    previous        uuid,
    kind            text not null,
    began_at        timestamptz not null default clock_timestamp(),
    constraint reign_pkey primary key (queue_name, epoch),
    constraint reign_serial_key unique (queue_name, serial),
    constraint reign_kind_check check (kind in ('created', 'takeover', 'failover', 'adopted', 'kept'))
);
comment on table vedur.reign is
    'which node was root from which tick on: first_tick is the last tick that a reign has inherited, everything behind it is its own';

-- Epochs that were prepared for a takeover which was undone: nobody may be made root under them any more.
create table if not exists vedur.barred_epoch (
    queue_name      text not null,
    epoch           uuid not null,
    barred_at       timestamptz not null default clock_timestamp(),
    constraint barred_epoch_pkey primary key (queue_name, epoch)
);
comment on table vedur.barred_epoch is 'epochs of takeovers that were undone';

-- A root that was replaced while it was away, and knows it.
create table if not exists vedur.deposed (
    queue_name      text not null,
    epoch           uuid not null,
    root_node       text not null,
    first_tick      bigint not null,
    seen_at         timestamptz not null default clock_timestamp(),
    constraint deposed_pkey primary key (queue_name)
);
comment on table vedur.deposed is 'this node was root, and another one has taken over at first_tick: its queue is closed';
