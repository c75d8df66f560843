create or replace function londiste.execute_finish(
    in i_queue_name text,
    in i_file_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- End a script in the transaction that began it; the root passes it on here, so that it gets
-- its place in the stream.
--
-- Parameters: i_queue_name - cascaded queue; i_file_name - name of the script.
-- Returns: 200 done; 404 it was not begun.
-- Writes: on root event EXECUTE.
-- Raises: "queue does not exist".
-- ----------------------------------------------------------------------
declare
    _root boolean := pgq_node.is_root_node(i_queue_name);
    _script record;
begin
    select e.execute_sql, e.execute_attrs
    into _script
    from londiste.applied_execute e
    where e.execute_file = i_file_name;
    if not found then
        ret_code := 404;
        ret_note := 'execute_file called without execute_start';
        return;
    end if;

    if _root then
        perform pgq.insert_event(
            i_queue_name, 'EXECUTE', _script.execute_sql,
            i_file_name, _script.execute_attrs, null, null);
    end if;
    ret_code := 200;
    ret_note := 'Execute finished: ' || i_file_name;
end;
$$;
