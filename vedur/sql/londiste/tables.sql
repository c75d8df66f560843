create schema if not exists londiste;

-- Tables of each set, and what this node does with them.
create table londiste.table_info (
    nr              serial not null,
    queue_name      text not null,
    table_name      text not null,                  -- name in the set: schema.table, not quoted
    local           boolean not null default false, -- the table is on this node
    merge_state     text,       -- NULL, in-copy, catching-up, wanna-sync:N, do-sync:N, ok
    custom_snapshot text,       -- events visible in it came with the copy already
    dropped_ddl     text,       -- indexes and constraints to create after the copy
    table_attrs     text,       -- urlencoded settings
    dest_table      text,       -- name on this node, NULL when it is the name in the set

    primary key (queue_name, table_name),
    foreign key (queue_name)
        references pgq_node.node_info (queue_name)
        on delete cascade,
    constraint table_info_check
        check (dropped_ddl is null or merge_state in ('in-copy', 'catching-up'))
);

-- Sequences of each set, with the value that was told to all nodes last.
create table londiste.seq_info (
    nr              serial not null,
    queue_name      text not null,
    seq_name        text not null,
    local           boolean not null default false,
    last_value      bigint not null,

    primary key (queue_name, seq_name),
    foreign key (queue_name)
        references pgq_node.node_info (queue_name)
        on delete cascade
);

-- Scripts that ran on this node.
create table londiste.applied_execute (
    queue_name      text not null,
    execute_file    text not null,
    execute_time    timestamptz not null default now(),
    execute_sql     text not null,
    execute_attrs   text,

    primary key (execute_file)
);

-- Foreign keys that were dropped for a copy and must come back after it.
create table londiste.pending_fkeys (
    from_table      text not null,
    to_table        text not null,
    fkey_name       text not null,
    fkey_def        text not null,

    primary key (from_table, fkey_name)
);
