create table if not exists vedur.repair_log (
    id              bigint generated always as identity constraint repair_log_pkey primary key,
    repaired_at     timestamptz not null default now(),
    repaired_by     text not null default session_user,
    queue_name      text not null,
    table_name      text not null,
    dest_table      text not null,
    tick_id         bigint not null,
    action          text not null constraint repair_log_action_check check (action in ('insert', 'update', 'delete')),
    row_key         text not null,
    old_row         json,
    new_row         json
);
do $$
-- Only where it is missing: the statement locks its table against writers even if there is nothing to do.
begin
    if pg_catalog.to_regclass('vedur.repair_log_table_idx') is null then
        create index repair_log_table_idx on vedur.repair_log (queue_name, table_name, tick_id);
    end if;
end
$$;
comment on table vedur.repair_log is 'every row that repair wrote on this node: what it was, what it became, at which tick';
