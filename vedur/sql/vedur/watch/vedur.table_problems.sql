create or replace function vedur.table_problems(i_queue_name text)
returns table (table_name text, severity text, what text, action text)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- Tell what is wrong with the replicated tables of this node and cannot be seen from the queue: changes by hand
-- that other nodes were not told of, and what the catalog shows now of tables and of the queue.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: table (name in the set; sequence or event table of the queue), severity (fail or warn), what, and what to do.
-- Writes: nothing.
    with here as (
        select t.nr, t.table_name, coalesce(t.dest_table, t.table_name) as dest, w.relid, w.captured,
            londiste.find_table_oid(coalesce(t.dest_table, t.table_name)) as named, n.node_type = 'root' as root
        from londiste.table_info as t
            join pgq_node.node_info as n on n.queue_name = t.queue_name
            left join vedur.table_watch as w on w.queue_name = t.queue_name and w.table_name = t.table_name
        where t.queue_name = i_queue_name
            and t.local
    )
    select c.table_name, c.severity,
        c.what || case when c.severity = 'fail' then format(' (not repaired yet: %s)', p.nodes) else '' end,
        c.action
    from vedur.table_change as c
        cross join lateral (
            select string_agg(l.node_name, ', ' order by l.node_name) as nodes
            from pgq_node.node_location as l
            where l.queue_name = c.queue_name
                and not l.dead
                and l.node_name = any (c.pending)) as p
    where c.queue_name = i_queue_name
        and (c.severity = 'warn' or p.nodes is not null)
    union all
    select h.table_name, 'fail', case
            when c.oid is null then format('table %s was dropped and made anew: its changes are not captured', h.dest)
            else format('table %s is another table now, the replicated one is %s', h.dest, c.oid::regclass)
        end, format('run "remove-table %1$s" and "add-table %1$s" on this node, then on the others', h.table_name)
    from here as h
        left join pg_class as c on c.oid = h.relid
    where h.relid <> h.named
        and h.root
        and not vedur.has_capture(i_queue_name, h.named)
    union all
    select h.table_name, 'fail', format('table %s was dropped', h.dest),
        format('create it and add it again, or "remove-table %s"', h.table_name)
    from here as h
    where h.named is null
        and h.root
        and h.relid is not null  -- a virtual table never was here
        and not exists (select from pg_class as c where c.oid = h.relid)
    union all
    select h.table_name, 'warn', format('TRUNCATE is not %s on %s partition(s) without trigger: %s',
            case when h.root then 'captured' else 'refused' end, cardinality(u.parts), array_to_string(u.parts[1:3], ', ')),
        format('the worker of the root and pgqd make them as soon as they get a lock and own the table;'
            ' or run as its owner: select vedur.guard_partitions(%L, %L::regclass)', i_queue_name, h.dest)
    from here as h
        cross join lateral (select vedur.unguarded_partitions(i_queue_name, h.named) as parts) as u
    where cardinality(u.parts) > 0
    union all
    select h.table_name, 'fail', format('triggers of %s are disabled, its changes are lost: %s', g.tgrelid::regclass,
            string_agg(g.tgname, ', ' order by g.tgname)),
        format('alter table %s enable trigger user, then run "repair %s --apply" on every node that has the table',
            g.tgrelid::regclass, h.table_name)
    from here as h
        cross join lateral (select h.named union all select l.relid from vedur.leaf_partitions(h.named) as l) as r (relid)
        join pg_trigger as g on g.tgrelid = r.relid
    where h.root
        and g.tgenabled in ('D', 'R')
        and g.tgname = any (vedur.capture_trigger_names(i_queue_name))
    group by h.table_name, g.tgrelid
    union all
    select h.table_name, 'fail', format('table %s has no trigger of the set any more: its changes are lost', h.dest),
        format('run "remove-table %1$s" and "add-table %1$s" on this node, then on the others', h.table_name)
    from here as h
    where h.relid = h.named
        and h.root
        and h.captured
        and not vedur.has_capture(i_queue_name, h.named)
    union all
    select h.table_name, 'warn', format('%s has children by inheritance, whose rows are not replicated with it: %s', h.dest,
            (select string_agg(i.inhrelid::regclass::text, ', ' order by i.inhrelid) from pg_inherits as i where i.inhparent = h.named)),
        'add each child as a table of its own'
    from here as h
        join pg_class as c on c.oid = h.named and c.relkind = 'r'
    where h.root
        and exists (
            select
            from pg_inherits as i
            where i.inhparent = h.named
                and not exists (
                    select
                    from here as o
                    where o.named = i.inhrelid))
    union all
    select h.table_name, 'warn', format('trigger %s of %s fires after capture: it may change or keep out rows that were captured already',
            string_agg(o.tgname, ', ' order by o.tgname), h.dest),
        format('give it a name that sorts before %s', g.tgname)
    from here as h
        join pg_trigger as g on g.tgrelid = h.named
        join pg_trigger as o on o.tgrelid = h.named
    where h.root
        and g.tgname in (('_londiste_' || i_queue_name)::name, ('zzz__londiste_' || i_queue_name)::name)
        and g.tgtype & 3 = 3  -- before, for each row
        and not 'SKIP' = any (vedur.trigger_arguments(g.tgargs))  -- then nothing fires after it
        and o.tgtype & 3 = 3
        and not o.tgisinternal
        and o.tgenabled in ('O', 'A')
        and o.tgtype & g.tgtype & 28 > 0  -- insert, delete, update
        and o.tgname > g.tgname
    group by h.table_name, h.dest, g.tgname
    union all
    select h.table_name, 'warn', format('%s is unlogged: a crash of this server empties it, and no event tells', u.relid::regclass),
        format('alter table %s set logged', u.relid::regclass)
    from here as h
        cross join lateral (
            select h.named as relid
            union
            select t.relid from pg_partition_tree(h.named) as t) as u
        join pg_class as c on c.oid = u.relid and c.relpersistence = 'u'
    union all
    select p.object_name, p.severity, p.what, p.action
    from vedur.queue_problems(i_queue_name) as p
$$;
