-- Schema pgq: queues, ticks, consumers and their positions. Run once, on a database without the schema.
-- The names and types of everything here are a public contract.
create schema if not exists pgq;

-- ----------------------------------------------------------------------
-- One row per consumer name; a name may be subscribed to many queues.
--
-- co_id                    number used by pgq.subscription
-- co_name                  name given at registration
-- ----------------------------------------------------------------------
create table pgq.consumer (
    co_id                       serial,
    co_name                     text not null,

    constraint consumer_pkey primary key (co_id),
    constraint consumer_name_uq unique (co_name)
);

-- ----------------------------------------------------------------------
-- One row per queue: where its events live, how it ticks, how it rotates.
--
-- queue_id                 number in the names of the event tables
-- queue_name               name used by every function
-- queue_ntables            how many event tables take turns
-- queue_cur_table          which of them is written now
-- queue_rotation_period    shortest time between two rotations
-- queue_switch_step1       transaction that made queue_cur_table current
-- queue_switch_step2       transaction that began after step1 was committed; null between the two steps
-- queue_switch_time        when step1 happened
-- queue_external_ticker    ticks are brought from another node; our ticker leaves the queue alone
-- queue_disable_insert     inserts are refused unless session_replication_role is replica
-- queue_ticker_paused      no ticks for now
-- queue_ticker_max_count   tick when so many events are waiting
-- queue_ticker_max_lag     tick when the oldest waiting event may be so old
-- queue_ticker_idle_period tick an idle queue at least so often
-- queue_per_tx_limit       most events one transaction may insert; null or negative: no limit
-- queue_data_pfx           name of the parent of the event tables; each is this name, "_" and its number
-- queue_event_seq          sequence of ev_id
-- queue_tick_seq           sequence of tick_id
-- queue_extra_maint        functions that maintenance calls with the queue name
-- ----------------------------------------------------------------------
create table pgq.queue (
    queue_id                    serial,
    queue_name                  text not null,

    queue_ntables               integer not null default 3,
    queue_cur_table             integer not null default 0,
    queue_rotation_period       interval not null default '2 hours',
    queue_switch_step1          bigint not null default txid_current(),
    queue_switch_step2          bigint default txid_current(),
    queue_switch_time           timestamptz not null default now(),

    queue_external_ticker       boolean not null default false,
    queue_disable_insert        boolean not null default false,
    queue_ticker_paused         boolean not null default false,

    queue_ticker_max_count      integer not null default 500,
    queue_ticker_max_lag        interval not null default '3 seconds',
    queue_ticker_idle_period    interval not null default '1 minute',
    queue_per_tx_limit          integer,

    queue_data_pfx              text not null,
    queue_event_seq             text not null,
    queue_tick_seq              text not null,

    queue_extra_maint           text[],

    constraint queue_pkey primary key (queue_id),
    constraint queue_name_uq unique (queue_name)
);

-- ----------------------------------------------------------------------
-- Positions in a queue. A batch is what is visible in one tick and not in an earlier one.
-- Invariant: every event that is not visible in a stored tick is still in an event table.
--
-- tick_queue               queue
-- tick_id                  position; grows with the snapshot
-- tick_time                when it was taken (at the root of a set of nodes)
-- tick_snapshot            transactions finished at that time
-- tick_event_seq           last value of the event sequence, 0 if it was never used; for estimates only
-- ----------------------------------------------------------------------
create table pgq.tick (
    tick_queue                  integer not null,
    tick_id                     bigint not null,
    tick_time                   timestamptz not null default now(),
    tick_snapshot               txid_snapshot not null default txid_current_snapshot(),
    tick_event_seq              bigint not null,

    constraint tick_pkey primary key (tick_queue, tick_id),
    constraint tick_queue_fkey foreign key (tick_queue) references pgq.queue (queue_id)
);

create sequence pgq.batch_id_seq;

-- ----------------------------------------------------------------------
-- Where each consumer stands in each queue.
--
-- sub_id                   subscription; owner of retried events; shared by cooperating consumers
-- sub_queue, sub_consumer  who reads what
-- sub_last_tick            everything visible in this tick has been finished
-- sub_active               last call of the consumer
-- sub_batch                open batch, or null
-- sub_next_tick            upper end of the open batch, or null
-- ----------------------------------------------------------------------
create table pgq.subscription (
    sub_id                      serial,
    sub_queue                   integer not null,
    sub_consumer                integer not null,
    sub_last_tick               bigint,
    sub_active                  timestamptz not null default now(),
    sub_batch                   bigint,
    sub_next_tick               bigint,

    constraint subscription_pkey primary key (sub_queue, sub_consumer),
    constraint subscription_batch_idx unique (sub_batch),
    constraint sub_queue_fkey foreign key (sub_queue) references pgq.queue (queue_id),
    constraint sub_consumer_fkey foreign key (sub_consumer) references pgq.consumer (co_id)
);

-- ----------------------------------------------------------------------
-- Shape of all event tables; holds no rows. Grants on it are copied to new event tables.
--
-- ev_id                    number, taken while the producer holds its row lock
-- ev_time                  when the event was inserted
-- ev_txid                  transaction that inserted it
-- ev_owner                 null: for everyone; else the subscription that asked for a retry
-- ev_retry                 how often it was retried
-- ev_type, ev_data, ev_extra1..4   content
-- ----------------------------------------------------------------------
create table pgq.event_template (
    ev_id                       bigint not null,
    ev_time                     timestamptz not null,

    ev_txid                     bigint not null default txid_current(),
    ev_owner                    integer,
    ev_retry                    integer,

    ev_type                     text,
    ev_data                     text,
    ev_extra1                   text,
    ev_extra2                   text,
    ev_extra3                   text,
    ev_extra4                   text
);

-- ----------------------------------------------------------------------
-- Events that one consumer wants to see again later.
--
-- ev_retry_after           not before this time
-- ev_queue                 queue they go back to
-- ev_owner                 subscription that asked; only it will see the event again
-- ----------------------------------------------------------------------
create table pgq.retry_queue (
    ev_retry_after              timestamptz not null,
    ev_queue                    integer not null,

    like pgq.event_template,

    constraint rq_pkey primary key (ev_owner, ev_id),
    constraint rq_queue_id_fkey foreign key (ev_queue) references pgq.queue (queue_id)
);
alter table pgq.retry_queue alter column ev_owner set not null;
alter table pgq.retry_queue alter column ev_txid drop not null;

create index rq_retry_idx on pgq.retry_queue (ev_retry_after);
