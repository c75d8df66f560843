-- Tables of which this branch passes on a part of the events, and since when. Nodes below ask before they apply a batch: whoever
-- takes a part for the whole would lose rows. An entry that has ended is kept as long as the queue has events of its time.
create table if not exists vedur.published_part (
    queue_id        integer not null,
    table_name      text not null,
    condition       text not null,
    after_tick      bigint not null,
    until_tick      bigint,
    constraint published_part_pkey primary key (queue_id, table_name, after_tick)
);
comment on table vedur.published_part is 'tables of which this branch passes on a part of the events';
