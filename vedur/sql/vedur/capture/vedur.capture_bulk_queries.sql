create or replace function vedur.capture_bulk_queries(
    i_relid oid,
    i_op text,
    i_format text,
    i_queue_name text,
    i_nested boolean,
    i_moved boolean)
returns text[]
language plpgsql
stable
as $$
-- Write the queries that give the events of one statement, in the order in which they must be logged.
--
-- Parameters: i_relid - the table; i_op - as TG_OP; i_format - json or urlenc; i_queue_name;
--     i_nested - whether the table is also changed from within the statement; i_moved - whether an
--     update made a key vanish.
-- Returns: queries with columns ev_type, ev_data, ev_extra1 over old_rows, new_rows and the table.
-- Writes: nothing.
--
-- An update needs no pairing of old and new rows: keys that vanished are deletes, keys that appeared
-- are inserts, all others are updates with the whole new row. So shifted and swapped keys end right.
declare
    _args text[] := array[i_queue_name];
    _insert text;
    _update text;
    _delete text;
    _touched text;
    _same text;
begin
    if i_op = 'TRUNCATE' then
        return array[format(
            'select * from (%s) as e (ev_type, ev_data, ev_extra1, x2, x3, x4)',
            (select p.query from vedur.capture_plan(i_relid, 'AFTER', 'STATEMENT', i_op, i_format, _args) as p))];
    end if;
    -- Only what is needed: writing one takes as long as logging a hundred rows.
    if i_op = 'INSERT' or i_nested or i_moved then
        _insert := format('cross join lateral (%s) as e', vedur.capture_event(
            i_relid, 'INSERT', i_format, _args, '"vedur.new"', '"vedur.old"'));
    end if;
    if cardinality(vedur.capture_key(i_relid, null)) = 0 and i_op = 'INSERT' then
        return array['select e.* from new_rows as "vedur.new" ' || _insert];
    end if;
    if i_op = 'DELETE' or i_nested or i_moved then
        _delete := format('cross join lateral (%s) as e', vedur.capture_event(
            i_relid, 'DELETE', i_format, _args, '"vedur.new"', '"vedur.old"'));
    end if;
    if i_op = 'UPDATE' then
        _update := format('cross join lateral (%s) as e', vedur.capture_event(
            i_relid, 'UPDATE', i_format, _args, '"vedur.new"', '"vedur.old"'));
    end if;
    select string_agg(format(
        '%s = %s', vedur.capture_ref('"vedur.new"', k), vedur.capture_ref('"vedur.old"', k)), ' and ')
    into _same
    from unnest(vedur.capture_key(i_relid, null)) as k;
    if i_nested then
        _touched := case i_op
            when 'INSERT' then 'select * from new_rows'
            when 'DELETE' then 'select * from old_rows'
            else 'select * from old_rows union all select * from new_rows'
        end;
        return array[
            format('select e.* from (%s) as "vedur.old" %s', _touched, _delete),
            format('select e.* from %s as "vedur.new" %s where exists (select from (%s) as "vedur.old" where %s)',
                i_relid::regclass, _insert, _touched, _same)];
    end if;
    return case
        when i_op = 'INSERT' then array['select e.* from new_rows as "vedur.new" ' || _insert]
        when i_op = 'DELETE' then array['select e.* from old_rows as "vedur.old" ' || _delete]
        when not i_moved then array['select e.* from new_rows as "vedur.new" ' || _update]
        else array[
            format('select e.* from old_rows as "vedur.old" %s where not exists (select from new_rows as "vedur.new" where %s)',
                _delete, _same),
            format('select e.* from new_rows as "vedur.new" %s where exists (select from old_rows as "vedur.old" where %s)',
                _update, _same),
            format('select e.* from new_rows as "vedur.new" %s where not exists (select from old_rows as "vedur.old" where %s)',
                _insert, _same)]
    end;
end;
$$;
