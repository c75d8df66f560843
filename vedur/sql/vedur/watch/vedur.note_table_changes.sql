create or replace function vedur.note_table_changes(
    i_queue_name text,
    i_table_name text,
    i_relid oid,
    i_before jsonb,
    i_now jsonb,
    i_captured boolean)
returns integer
language plpgsql
as $$
-- Compare two looks at a table of the root and remember what no event has told other nodes.
--
-- Parameters: i_queue_name; i_table_name - name in the set; i_relid - the table; i_before, i_now - as
--     vedur.table_state gives them; i_captured - it had a row trigger of the queue before.
-- Returns: how many changes were found.
-- Writes: vedur.table_change.
-- Errors: none of its own.
declare
    _repair text := format('run "repair %s --apply" on every node that has the table', i_table_name);
    _forget text := format('then select vedur.forget_table_changes(%L, %L) here', i_queue_name, i_table_name);
    _alter text := format('make the same change on the other nodes ("check" compares them), %s; "execute" changes all nodes at once', _forget);
    _compute text := format(
        'make the same change on the other nodes ("check" compares them), run "compare %s" there, since USING and defaults compute'
            ' values that no event has carried, %s; "execute" changes all nodes at once', i_table_name, _forget);
    _nodes text[] := vedur.other_nodes(i_queue_name);
    -- False after pg_upgrade: then the catalog tells nothing of what was done before.
    _comparable boolean := coalesce(i_before ->> 'made' = i_now ->> 'made', false);
    _row_triggers text[] := array['_londiste_' || i_queue_name, 'zzz__londiste_' || i_queue_name]::name[];
    _rewritten boolean := i_before ->> 'file' <> i_now ->> 'file' or exists (
        select
        from jsonb_each(nullif(i_now -> 'partitions', 'null')) as p
        where i_before -> 'partitions' -> p.key ->> 1 <> p.value ->> 1);
    _found integer;
begin
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
            end, case when b.value is null or b.value ->> 1 <> n.value ->> 1 or _rewritten then _compute else _alter end
        from jsonb_each(i_before -> 'columns') as b
            full join jsonb_each(i_now -> 'columns') as n on n.key = b.key
        where b.value is distinct from n.value
        union all
        select 'warn', 2, r.what, format(
            'run "compare %s" on the other nodes: rows that differ have values that USING computed here alone;'
                ' "repair %1$s --apply" brings them, %s', i_table_name, _forget)
        from (
            -- VACUUM FULL and its like give a new file alone, SET STATISTICS and its like write the column alone.
            select format(
                'the table was rewritten while column(s) were altered by hand: %s',
                string_agg(format('"%s"', n.value ->> 0), ', ' order by n.key::int)) as what
            from jsonb_each(i_now -> 'columns') as n
            where _comparable
                and i_before -> 'written' ->> n.key <> i_now -> 'written' ->> n.key
                and i_before -> 'columns' -> n.key = n.value
                and _rewritten
            having count(*) > 0
        ) as r
        union all
        select 'fail', 3, format('triggers of %s were %s', case
                when bool_or(g.relid = i_relid) then i_now ->> 'name'
                else array_to_string((array_agg(distinct i_now -> 'partitions' -> g.relid::text ->> 0))[1:3], ', ')
                    || case when count(distinct g.relid) > 3 then format(' and %s more', count(distinct g.relid) - 3) else '' end
            end, g.how), _repair
        from (
            select (coalesce(n.value, b.value) ->> 0)::oid as relid, case
                    when 'D' in (b.value ->> 2, n.value ->> 2) or 'R' in (b.value ->> 2, n.value ->> 2)
                        then 'disabled: the other nodes did not get its changes'
                    when n.value is null then 'dropped or renamed: the other nodes do not get its changes'
                    when b.value is null then 'dropped or renamed for a while: the other nodes did not get its changes'
                    else 'altered between two looks: what was changed while they were disabled is not on the other nodes'
                end as how
            from jsonb_each(i_before -> 'triggers') as b
                full join jsonb_each(i_now -> 'triggers') as n on n.key = b.key
            where _comparable
                and case
                    when b.value is null then n.value ->> 2 in ('D', 'R')
                        or i_captured and n.value ->> 0 = i_relid::text and n.value ->> 1 = any (_row_triggers)
                            and not exists (
                                select
                                from jsonb_each(i_before -> 'triggers') as o
                                where o.value -> 0 = n.value -> 0
                                    and o.value ->> 1 = any (_row_triggers))
                    -- Another one of this name was made by Vedur itself, at once. Triggers of a partition go with it.
                    when n.value is null then
                        (b.value ->> 0 = i_relid::text or i_now -> 'partitions' ? (b.value ->> 0))
                        and (b.value ->> 2 in ('D', 'R')
                            or not exists (
                                select
                                from jsonb_each(i_now -> 'triggers') as o
                                where o.value -> 0 = b.value -> 0
                                    and (o.value -> 1 = b.value -> 1
                                        or o.value ->> 1 = any (_row_triggers) and b.value ->> 1 = any (_row_triggers))))
                    else b.value <> n.value and b.value ->> 1 = n.value ->> 1
                end
        ) as g
        group by g.how
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
            and vedur.came_with_rows(n.key::oid, i_relid)
            and vedur.may_have_rows(n.key::oid)
        union all
        select 'fail', 4, format('partition %s was detached and attached again: the other nodes do not have what was written to it in between', n.value ->> 0),
            _repair
        from jsonb_each(nullif(i_now -> 'partitions', 'null')) as n
        where _comparable
            and i_before -> 'partitions' -> n.key ->> 2 <> n.value ->> 2
        union all
        select 'fail', 5, format('partition %s may have been truncated before its trigger was made', n.value ->> 0), _repair
        from jsonb_each(nullif(i_now -> 'partitions', 'null')) as n
            join pg_catalog.pg_class as c on c.oid = n.key::oid and c.relkind = 'r'
        where n.value ->> 1 <> coalesce(i_before -> 'partitions' -> n.key ->> 1, n.key)
            and not (i_before -> 'partitions' -> n.key is null and vedur.came_with_rows(c.oid, i_relid))
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
