create or replace function vedur.capture_query(
    i_relid oid,
    i_op text,
    i_format text,
    i_args text[],
    i_new text,
    i_old text)
returns text
language plpgsql
stable
as $$
-- Write the query that gives all events of one changed row.
--
-- Parameters: i_relid - the table; i_op - INSERT, UPDATE or DELETE; i_format - json, urlenc or sql;
--     i_args - the trigger's arguments; i_new, i_old - how the statement refers to the rows.
-- Returns: a query as vedur.capture_event writes it. An update of the key gives two rows, a delete of
--     the old row and an insert of the new one, in this order.
-- Writes: nothing.
-- Errors: those of vedur.capture_event.
declare
    _changed text;
begin
    if i_op <> 'UPDATE' then
        return vedur.capture_event(i_relid, i_op, i_format, i_args, i_new, i_old);
    end if;
    _changed := vedur.capture_key_changed(
        i_relid, (select a.pkey from vedur.capture_arguments(i_args) as a), i_new, i_old);
    return format(
        E'select e.* from (%s) as e where not (%s)\nunion all select e.* from (%s) as e where %s'
            '\nunion all select e.* from (%s) as e where %s',
        vedur.capture_event(i_relid, 'UPDATE', i_format, i_args, i_new, i_old), _changed,
        vedur.capture_event(i_relid, 'DELETE', i_format, i_args, i_new, i_old), _changed,
        vedur.capture_event(i_relid, 'INSERT', i_format, i_args, i_new, i_old), _changed);
end;
$$;
