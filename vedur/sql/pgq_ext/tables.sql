-- Schema pgq_ext: a consumer that writes to another database stores here, in the same transaction as its data, what it has
-- done; after a crash it knows what to skip. Run once, on a database without the schema.
create schema if not exists pgq_ext;

-- ----------------------------------------------------------------------
-- Last tick that a consumer has done completely.
-- ----------------------------------------------------------------------
create table pgq_ext.completed_tick (
    consumer_id                 text not null,
    subconsumer_id              text not null,
    last_tick_id                bigint not null,

    constraint completed_tick_pkey primary key (consumer_id, subconsumer_id)
);

-- ----------------------------------------------------------------------
-- Last batch that a consumer has done completely.
-- ----------------------------------------------------------------------
create table pgq_ext.completed_batch (
    consumer_id                 text not null,
    subconsumer_id              text not null,
    last_batch_id               bigint not null,

    constraint completed_batch_pkey primary key (consumer_id, subconsumer_id)
);

-- ----------------------------------------------------------------------
-- Events done in the batch that a consumer is working on.
-- ----------------------------------------------------------------------
create table pgq_ext.completed_event (
    consumer_id                 text not null,
    subconsumer_id              text not null,
    batch_id                    bigint not null,
    event_id                    bigint not null,

    constraint completed_event_pkey primary key (consumer_id, subconsumer_id, batch_id, event_id)
);

-- ----------------------------------------------------------------------
-- Batch whose events are in completed_event.
-- ----------------------------------------------------------------------
create table pgq_ext.partial_batch (
    consumer_id                 text not null,
    subconsumer_id              text not null,
    cur_batch_id                bigint not null,

    constraint partial_batch_pkey primary key (consumer_id, subconsumer_id)
);
