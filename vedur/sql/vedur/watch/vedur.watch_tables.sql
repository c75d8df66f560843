create or replace function vedur.watch_tables(i_queue_name text, i_accept boolean default false)
returns integer
language plpgsql
as $$
-- Look at the replicated tables of this node: what was changed by hand since the last look is remembered, so that
-- status, doctor and the page tell it, and partitions that lack their truncate trigger get it.
--
-- Parameters: i_queue_name - cascaded queue; i_accept - what changed was replicated (by a script of "execute"):
--     remember the tables as they are now and say nothing.
-- Returns: how many changes were found.
-- Writes: vedur.table_watch; vedur.table_change on the root; londiste.table_info.dest_table of a table that got
--     another name: on the root always, elsewhere with i_accept; triggers of partitions.
-- Errors: none of its own. A trigger that cannot be made now (a lock, a missing right) is tried again at the next
--     look; until then vedur.table_problems names the partition.
--
-- A table is known by its oid, so a new name is told from a new table. After a restore of a dump oids differ, and
-- may be those of other relations: a table of the right name that has its triggers is taken as it is.
declare
    _root boolean;
    _t record;
    _relid oid;
    _state jsonb;
    _count integer := 0;
    _patience text := current_setting('lock_timeout');
begin
    select n.node_type = 'root' into _root
    from pgq_node.node_info as n
    where n.queue_name = i_queue_name;
    if not found then
        return 0;
    end if;
    -- One at a time: the next look comes soon. A script has taken the lock before.
    if not pg_try_advisory_xact_lock(hashtext('vedur.watch_tables'), hashtext(i_queue_name)) then
        return 0;
    end if;
    delete from vedur.table_watch as w
    where w.queue_name = i_queue_name
        and not exists (
            select
            from londiste.table_info as t
            where t.queue_name = w.queue_name
                and t.table_name = w.table_name
                and t.local);
    delete from vedur.table_change as c
    where c.queue_name = i_queue_name
        and not exists (
            select
            from londiste.table_info as t
            where t.queue_name = c.queue_name
                and t.table_name = c.table_name
                and t.local);

    -- A node that was dropped repairs nothing any more, and one that takes its name copies its tables.
    update vedur.table_change as c
    set pending = array(
        select p.name
        from unnest(c.pending) as p (name)
        where exists (
            select
            from pgq_node.node_location as l
            where l.queue_name = c.queue_name
                and l.node_name = p.name))
    where c.queue_name = i_queue_name
        and exists (
            select
            from unnest(c.pending) as p (name)
            where not exists (
                select
                from pgq_node.node_location as l
                where l.queue_name = c.queue_name
                    and l.node_name = p.name));
    delete from vedur.table_change as c
    where c.queue_name = i_queue_name
        and c.severity = 'fail'
        and c.pending = '{}';

    for _t in
        select t.table_name, coalesce(t.dest_table, t.table_name) as dest, w.relid, w.state, w.captured,
            londiste.find_table_oid(coalesce(t.dest_table, t.table_name)) as named
        from londiste.table_info as t
            left join vedur.table_watch as w on w.queue_name = t.queue_name and w.table_name = t.table_name
        where t.queue_name = i_queue_name
            and t.local
        order by t.nr
    loop
        _state := vedur.table_state(i_queue_name, _t.relid);
        continue when _state is not null and _state = _t.state and _t.relid is not distinct from _t.named;
        _relid := _t.relid;
        if _t.relid <> _t.named and not vedur.has_capture(i_queue_name, _t.relid) and vedur.has_capture(i_queue_name, _t.named) then
            _state := null;  -- in a restored database the number may be that of anything
        end if;
        if _state is null then
            -- seen for the first time, restored, or dropped and created again
            continue when _t.named is null
                or _t.relid is not null and not vedur.has_capture(i_queue_name, _t.named);
            _relid := _t.named;
            _state := vedur.table_state(i_queue_name, _relid);
            perform vedur.name_capture(i_queue_name, _t.table_name, _relid);
        elsif _state ->> 'name' <> _t.dest and _t.named is null and (_root or i_accept) then
            update londiste.table_info as t
            set dest_table = nullif(_state ->> 'name', t.table_name)
            where t.queue_name = i_queue_name
                and t.table_name = _t.table_name;
        end if;
        if _root and not i_accept and _t.relid = _relid then
            _count := _count + vedur.note_table_changes(i_queue_name, _t.table_name, _relid, _t.state, _state, _t.captured);
        end if;
        insert into vedur.table_watch as w (queue_name, table_name, relid, state, captured)
        values (i_queue_name, _t.table_name, _relid, _state, vedur.has_capture(i_queue_name, _relid))
        on conflict on constraint table_watch_pkey do update
        set relid = excluded.relid,
            state = excluded.state,
            captured = w.captured or excluded.captured;
    end loop;

    -- Another session waits behind us while we wait for a lock: not for long.
    perform set_config('lock_timeout', '200ms', true);
    for _t in
        select w.relid
        from vedur.table_watch as w
        where w.queue_name = i_queue_name
            and w.state -> 'partitions' <> 'null'
            and has_table_privilege(w.relid, 'trigger')
            and vedur.unguarded_partitions(i_queue_name, w.relid) <> '{}'
    loop
        begin
            perform vedur.guard_partitions(i_queue_name, _t.relid);
        exception
            when others then
                raise warning 'partitions of table "%" have no truncate trigger yet: %', _t.relid::regclass, sqlerrm;
        end;
    end loop;
    perform set_config('lock_timeout', _patience, true);
    return _count;
end;
$$;
