-- As it was before it knew for which table the trigger was made; beside this one, calls would be ambiguous.
drop function if exists vedur.capture_state(oid, text, text, text[], anyelement, anyelement, tid, xid, xid, boolean);

create or replace function vedur.capture_state(
    i_relid oid,
    i_op text,
    i_format text,
    i_args text[],
    i_new anyelement,
    i_old anyelement,
    i_ctid tid,
    i_xmax xid,
    i_old_xmin xid,
    i_guarded boolean default false,
    i_home oid default null)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether the rows of a change are old already, and then write the query that tells of its keys as they are now.
--
-- Parameters: i_relid, i_op - as the TG_ variables of an AFTER ROW trigger; i_format, i_args - see
--     vedur.capture_plan; i_new, i_old - the rows, one that does not exist may be any row; i_ctid, i_xmax - of the
--     new row's version, NULL for a delete; i_old_xmin - of the old row's version, NULL for an insert; i_guarded - this
--     runs with rights that the table's owner must not get (vedur.capture_may_read); i_home - the table that events name,
--     NULL for i_relid.
-- Returns: NULL when the change can be logged as it is; else a query as vedur.capture_query writes it, with the
--     new row as $1 and the old row as $2.
-- Writes: settings vedur.nested_<oid> and vedur.logged_<oid>, for the transaction.
-- Errors: two rows with one key; a table with a deferrable key that may not be read; those of vedur.capture_read_guard,
--     where the order of events depends on what the table has now.
--
-- AFTER ROW triggers fire when the whole statement is done, so what a trigger, a function or a cascade has
-- changed from within the statement is logged already. A new version that is not the row any more shows it; then the
-- keys are logged as they are now. Whatever changes them later is logged later.
-- A row that comes within a trigger where others were removed may come before the delete of its key is logged: it brings
-- the delete along and leaves a mark for the transaction. With the mark, a delete whose key is there again brings
-- the row along, and every row that comes its delete, so that their order does not matter any more.
--
-- A key that is checked later (DEFERRABLE) may belong to two rows between two statements or two rows of one, so
-- that no single change tells what becomes of it. Its trigger waits for the end of the transaction. There each change
-- writes the state of its keys: of a row that this transaction has made, delete and insert; of one that is gone and had
-- been there before, a delete; of one that others made nothing, since this transaction has not changed it. SET CONSTRAINTS
-- and deferred triggers of users make that happen several times: what was logged once may be gone the next time.
declare
    _a record;
    _keys text[];
    _deferred boolean;
    _moved boolean := false;
    _named oid := coalesce(i_home, i_relid);
    _home oid := coalesce(pg_partition_root(i_relid), i_relid);
    _from text := case when _home <> i_relid then '' else 'only ' end || _home::regclass || ' as "vedur.now"';
    _new text;
    _old text;
    _mark text := 'vedur.nested_' || _home;
    _nested boolean := vedur.capture_nested(i_relid);
    _live boolean := true;
    _logged boolean;
    _found record;
    _rows text;
    _gone text[] := '{}';
    _parts text[];
begin
    select * into _a from vedur.capture_arguments(i_args);
    _keys := vedur.capture_key(i_relid, _a.pkey);
    _deferred := vedur.capture_key_deferred(i_relid, _keys);
    if cardinality(_keys) = 0
        or not _deferred and i_op = 'DELETE' and current_setting(_mark, true) is distinct from '1' then
        return null;
    end if;
    if i_op = 'UPDATE' then
        execute format('select %s', vedur.capture_key_changed(i_relid, _a.pkey, '($1)', '($2)'))
        into _moved
        using i_new, i_old;
    end if;
    if not _deferred and i_op <> 'DELETE' and (i_op = 'INSERT' or _moved) then
        if _nested then
            perform set_config(_mark, '1', true);
        end if;
        _nested := coalesce(current_setting(_mark, true), '') = '1';
    end if;
    if not _deferred and i_op <> 'DELETE' and not (_nested and (i_op = 'INSERT' or _moved)) and coalesce(i_xmax, '0') = '0' then
        return null;
    end if;
    if row_security_active(_home) or not has_table_privilege(_home, 'select') then
        if not _deferred then
            return null;
        end if;
        raise exception 'table "%" has a deferrable key: role "%" must see all its rows to write them into queue "%"',
            _home::regclass, current_user, _a.queue_name
            using errcode = 'insufficient_privilege',
                hint = 'Grant it select on the table, and bypassrls if the table has row level security.';
    end if;
    if i_guarded and not vedur.capture_may_read(_home) then
        -- One row that is locked, say by ON CONFLICT, is no reason to refuse a change. Changes from within are.
        if not _deferred and not _nested and coalesce(current_setting('vedur.within_' || _home, true), '') <> '1' then
            return null;
        end if;
        perform vedur.capture_read_guard(_home);
    end if;
    _new := vedur.capture_same(i_relid, _keys, '"vedur.now"', '($1)');
    _old := vedur.capture_same(i_relid, _keys, '"vedur.now"', '($2)');
    if i_op = 'INSERT' then
        _old := _new;
    elsif i_op = 'DELETE' then
        _new := _old;
    end if;
    if _new is null then
        return null;
    end if;

    execute format(
        $q$
        select
            coalesce(bool_or("vedur.now".ctid = $3 and "vedur.now".tableoid = $4), false) as live,
            count(*) filter (where %2$s) as old_rows,
            count(*) filter (where %2$s and vedur.capture_own("vedur.now".xmin)) as old_own,
            count(*) filter (where %1$s) as new_rows,
            count(*) filter (where %1$s and vedur.capture_own("vedur.now".xmin)) as new_own
        from %3$s
        where %1$s or %2$s$q$, _new, _old, _from)
    into _found
    using i_new, i_old, i_ctid, i_relid;
    _live := i_op = 'DELETE' or coalesce(i_xmax, '0') = '0' or _found.live;

    if _deferred then
        if greatest(_found.old_own, _found.new_own) > 1
            or greatest(_found.old_rows, _found.new_rows) > 1 and current_setting('transaction_isolation') like 'read%' then
            raise exception 'table "%": two rows have the same key (%) when a change of it is to be written into queue "%"',
                _home::regclass, array_to_string(_keys, ', '), _a.queue_name
                using errcode = 'unique_violation',
                    hint = 'The key is checked later than its capture. Leave SET CONSTRAINTS ... IMMEDIATE away, or name the key'
                        ' in it too; if the key was made DEFERRABLE after the table was added, run vedur.refresh_capture.';
        end if;
        _logged := coalesce(current_setting('vedur.logged_' || _home, true), '') = '1';
        if _found.old_own + _found.new_own > 0 then
            perform set_config('vedur.logged_' || _home, '1', true);
        end if;
        -- The row that was there is still there: all its columns but these stay on the other side.
        if i_op = 'UPDATE' and not _moved and _found.live and not coalesce(vedur.capture_own(i_old_xmin), false) then
            return null;
        end if;
        if i_op <> 'INSERT' and (
            _found.old_own > 0 or _found.old_rows = 0 and (
                not coalesce(vedur.capture_own(i_old_xmin), false)
                or _logged)) then
            _gone := _gone || '($2)'::text;
        end if;
        if (i_op = 'INSERT' or _moved) and _found.new_own > 0 then
            _gone := _gone || '($1)'::text;
        end if;
        _rows := format('(%s or %s) and vedur.capture_own("vedur.now".xmin)', _new, _old);
    else
        if _live and i_op <> 'DELETE' and not (_nested and (i_op = 'INSERT' or _moved)) then
            return null;
        end if;
        if i_op = 'UPDATE' and not _moved and _found.new_rows > 0 then
            return format(
                'select e.* from %s cross join lateral (%s) as e where %s', _from,
                vedur.capture_event(_named, 'UPDATE', i_format, i_args, '"vedur.now"', '($2)'), _new);
        end if;
        _gone := case when i_op = 'INSERT' then '{($1)}' when _moved then '{($2),($1)}' else '{($2)}' end;
        _rows := case when _nested or i_op = 'DELETE' then format('(%s or %s)', _new, _old) else _new end;
    end if;

    select coalesce(array_agg(format(
        'select e.* from (%s) as e', vedur.capture_event(_named, 'DELETE', i_format, i_args, r, r)) order by n), '{}')
    into _parts
    from unnest(_gone) with ordinality as u (r, n);
    return array_to_string(_parts || format(
        'select e.* from %s cross join lateral (%s) as e where %s', _from,
        vedur.capture_event(_named, 'INSERT', i_format, i_args, '"vedur.now"', '"vedur.now"'), _rows), E'\nunion all ');
end;
$$;
