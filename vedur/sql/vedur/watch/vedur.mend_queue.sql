create or replace function vedur.mend_queue(i_queue_name text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
-- Set the sequences of a queue right that were altered by hand (vedur.queue_faults). What was captured meanwhile may
-- have been applied in another order, so a root remembers it of every table until each node is repaired.
--
-- Parameters: i_queue_name.
-- Returns: how many faults there were.
-- Writes: the sequences; vedur.table_change.
-- Errors: none. A sequence that cannot be altered now (a lock, a missing right) is tried again at the next look; until
--     then vedur.table_problems names it.
--
-- ALTER SEQUENCE keeps writers out until the transaction ends: call this in one of its own. Sessions forget the numbers
-- that they have taken in advance.
declare
    _fault record;
    _count integer := 0;
begin
    for _fault in
        select * from vedur.queue_faults(i_queue_name) as f where f.seq_name ~ '^pgq[.][^.]+$'
    loop
        _count := _count + 1;
        if _fault.of_events then
            insert into vedur.table_change as c (queue_name, table_name, severity, what, action, pending)
            select i_queue_name, w.table_name, 'fail',
                'events had numbers that do not tell their order: rows that were changed again may be older on the other nodes',
                format('run "repair %s --apply" on every node that has the table', w.table_name), n.nodes
            from vedur.table_watch as w
                join pgq_node.node_info as i on i.queue_name = w.queue_name and i.node_type = 'root'
                cross join lateral (select vedur.other_nodes(i_queue_name) as nodes) as n
            where w.queue_name = i_queue_name
                and w.captured
                and cardinality(n.nodes) > 0
            on conflict (queue_name, table_name, what) do update
            set change_id = default,
                pending = excluded.pending,
                seen_at = clock_timestamp();
        end if;
        begin
            if _fault.reached is not null then
                perform pgq.seq_setval(_fault.seq_name, _fault.reached);
            else
                execute _fault.remedy;
            end if;
            raise warning 'sequence "%" had %, it was set right', _fault.seq_name, _fault.fault;
        exception
            when others then
                raise warning 'sequence "%" has %, which cannot be set right now: %', _fault.seq_name, _fault.fault, sqlerrm;
        end;
    end loop;
    return _count;
end;
$$;
