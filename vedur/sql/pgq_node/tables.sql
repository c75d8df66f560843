create schema if not exists pgq_node;

-- Where every member of a cascade can be reached. Known on all nodes, changed through the root.
create table pgq_node.node_location (
    queue_name      text not null,
    node_name       text not null,
    node_location   text not null,                  -- libpq connect string
    dead            boolean not null default false, -- tagged by an operator, nobody connects to it

    primary key (queue_name, node_name)
);

-- What this database is in each cascade it belongs to.
create table pgq_node.node_info (
    queue_name      text not null primary key,
    node_type       text not null,
    node_name       text not null,
    worker_name     text,               -- the consumer that moves events and table data
    combined_queue  text,               -- leaf only: queue that this part is merged into
    node_attrs      text,               -- urlencoded settings, e.g. sync_watermark

    foreign key (queue_name, node_name)
        references pgq_node.node_location (queue_name, node_name),
    constraint node_info_node_type_check
        check (node_type in ('root', 'branch', 'leaf')),
    constraint node_info_check
        check (case
            when node_type = 'root' then worker_name is not null and combined_queue is null
            when node_type = 'branch' then worker_name is not null and combined_queue is null
            when node_type = 'leaf' then worker_name is not null
            else false
        end)
);

-- Position of each cascaded consumer that runs on this node; written in the transaction of its data.
create table pgq_node.local_state (
    queue_name      text not null,
    consumer_name   text not null,
    provider_node   text not null,
    last_tick_id    bigint not null,
    cur_error       text,                            -- last failure, shown by status; cleared by progress
    paused          boolean not null default false,  -- requested by the operator
    uptodate        boolean not null default false,  -- the consumer has seen the latest request

    primary key (queue_name, consumer_name),
    foreign key (queue_name)
        references pgq_node.node_info (queue_name),
    foreign key (queue_name, provider_node)
        references pgq_node.node_location (queue_name, node_name)
);

-- Nodes that read this node's queue.
create table pgq_node.subscriber_info (
    queue_name      text not null,
    subscriber_node text not null,
    worker_name     text not null,      -- consumer that reads events
    watermark_name  text not null,      -- consumer that holds events back for everything below that node

    primary key (queue_name, subscriber_node),
    foreign key (queue_name)
        references pgq_node.node_info (queue_name),
    foreign key (queue_name, subscriber_node)
        references pgq_node.node_location (queue_name, node_name),
    foreign key (worker_name)
        references pgq.consumer (co_name),
    foreign key (watermark_name)
        references pgq.consumer (co_name)
);
