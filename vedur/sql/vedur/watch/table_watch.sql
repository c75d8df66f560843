-- What the replicated tables of this node looked like at the last look, and what was changed by hand since.
create table if not exists vedur.table_watch (
    queue_name      text not null,
    table_name      text not null,
    relid           oid not null,
    state           jsonb not null,
    captured        boolean not null,
    constraint table_watch_pkey primary key (queue_name, table_name)
);
comment on table vedur.table_watch is
    'replicated tables as vedur.watch_tables saw them last: oid, and name, columns, partitions, triggers (vedur.table_state); and whether it had a row trigger of the queue since it was added';

create table if not exists vedur.table_change (
    change_id       bigint generated always as identity,
    queue_name      text not null,
    table_name      text not null,
    severity        text not null,
    what            text not null,
    action          text not null,
    pending         text[] not null default '{}',
    seen_at         timestamptz not null default clock_timestamp(),
    constraint table_change_pkey primary key (change_id),
    constraint table_change_severity_check check (severity in ('fail', 'warn'))
);
create unique index if not exists table_change_what on vedur.table_change (queue_name, table_name, what);
comment on table vedur.table_change is
    'changes of replicated tables that no event tells other nodes of; a row stays until every node in pending is repaired (vedur.mend_table_changes) or it is dismissed (vedur.forget_table_changes)';
