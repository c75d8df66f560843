create or replace function vedur.note_table_changes(
    i_queue_name text,
    i_table_name text,
    i_relid oid,
    i_before jsonb,
    i_now jsonb)
returns integer
language plpgsql
as $$
-- Compare two looks at a table of the root and remember what no event has told other nodes.
--
-- Parameters: i_queue_name; i_table_name - name in the set; i_relid - the table; i_before, i_now - as
--     vedur.table_state gives them.
-- Returns: how many changes were found.
-- Writes: vedur.table_change.
-- Errors: none of its own.
declare
    _repair text := format('run "repair %s --apply" on every node that has the table', i_table_name);
    _alter text := 'make the same change on the other nodes ("check" compares them), then'
        || format(' select vedur.forget_table_changes(%L, %L) here; "execute" changes all nodes at once', i_queue_name, i_table_name);
    _nodes text[] := array(
        select l.node_name
        from pgq_node.node_location as l
            join pgq_node.node_info as n on n.queue_name = l.queue_name and n.node_name <> l.node_name
        where l.queue_name = i_queue_name
            and not l.dead
        order by l.node_name);
    _found integer;
begin
    -- A node that joins later copies its tables as they are then.
    insert into vedur.table_change as c (queue_name, table_name, severity, what, action, pending)
    select i_queue_name, i_table_name, f.severity, f.what, f.action, _nodes
    from (
        select 'warn' as severity, 1 as nr,
            format('table %s was renamed to %s by hand; its changes go on under its name in the set', i_before ->> 'name', i_now ->> 'name') as what,
            format('other nodes keep their names; dismiss this with select vedur.forget_table_changes(%L, %L) here', i_queue_name, i_table_name) as action
        where i_before ->> 'name' <> i_now ->> 'name'
        union all
        select 'warn', 2, case
                when n.value is null then format('column "%s" was dropped by hand', b.value ->> 0)
                when b.value is null then format('column "%s" was added by hand', n.value ->> 0)
                when b.value ->> 0 <> n.value ->> 0 then format('column "%s" was renamed to "%s" by hand', b.value ->> 0, n.value ->> 0)
                else format('the type of column "%s" was changed by hand from %s to %s', n.value ->> 0, b.value ->> 1, n.value ->> 1)
            end, _alter
        from jsonb_each(i_before -> 'columns') as b
            full join jsonb_each(i_now -> 'columns') as n on n.key = b.key
        where b.value is distinct from n.value
        union all
        select 'fail', 3, case
                when c.oid is not null then format('partition %s was detached: its rows are still on the other nodes', b.value ->> 0)
                else format('partition %s was dropped: its rows are still on the other nodes', b.value ->> 0)
            end, _repair
        from jsonb_each(nullif(i_before -> 'partitions', 'null')) as b
            left join pg_catalog.pg_class as c on c.oid = b.key::oid
        where not coalesce(i_now -> 'partitions', '{}') ? b.key
        union all
        select 'fail', 4, format('partition %s was attached with rows: the other nodes do not have them', n.value ->> 0), _repair
        from jsonb_each(nullif(i_now -> 'partitions', 'null')) as n
        where not coalesce(i_before -> 'partitions', '{}') ? n.key
            and vedur.was_attached(n.key::oid)
            and vedur.may_have_rows(n.key::oid)
        union all
        select 'fail', 5, format('partition %s may have been truncated before its trigger was made', n.value ->> 0), _repair
        from jsonb_each(nullif(i_now -> 'partitions', 'null')) as n
            join pg_catalog.pg_class as c on c.oid = n.key::oid and c.relkind = 'r'
        where n.value ->> 1 <> coalesce(i_before -> 'partitions' -> n.key ->> 1, n.key)
            and not (i_before -> 'partitions' -> n.key is null and vedur.was_attached(c.oid))
            and not exists (
                select
                from pg_catalog.pg_trigger as t
                where t.tgrelid = c.oid
                    and t.tgfoid = 'vedur.truncate_partition()'::regprocedure)
    ) as f
    where f.severity = 'warn'
        or cardinality(_nodes) > 0
    order by f.nr, f.what
    on conflict (queue_name, table_name, what) do update
    set change_id = default,
        pending = excluded.pending,
        seen_at = clock_timestamp();
    get diagnostics _found = row_count;
    return _found;
end;
$$;
