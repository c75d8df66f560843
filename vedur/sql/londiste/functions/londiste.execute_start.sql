create or replace function londiste.execute_start(
    in i_queue_name text,
    in i_file_name text,
    in i_sql text,
    in i_expect_root boolean,
    in i_attrs text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Begin a script that runs at the same place of the stream on every node.
--
-- A script is known by its name and its text. The same text under the same name is not run
-- again. Other text under a used name is refused on the root, where the operator can give it
-- a new name; on other nodes it runs, because the root has run it.
--
-- Parameters: i_queue_name - cascaded queue; i_file_name - name of the script; i_sql - its
--             text; i_expect_root - caller wants to start it, not to replay it; i_attrs -
--             where it applies, urlencoded, or NULL.
-- Returns: 200 run it now; 201 it ran before, skip it; 401 not root; 409 the name was used
--          for other text.
-- Writes: londiste.applied_execute; its row is the lock against a second run.
-- Raises: "queue does not exist".
-- ----------------------------------------------------------------------
declare
    _root boolean := pgq_node.is_root_node(i_queue_name);
    _old_sql text;
begin
    if i_expect_root and not _root then
        ret_code := 401;
        ret_note := 'Node is not root node: ' || i_queue_name;
        return;
    end if;

    insert into londiste.applied_execute (queue_name, execute_file, execute_sql, execute_attrs)
    values (i_queue_name, i_file_name, i_sql, i_attrs)
    on conflict (execute_file) do nothing;
    if found then
        ret_code := 200;
        ret_note := 'Executing: ' || i_file_name;
        return;
    end if;

    select e.execute_sql
    into _old_sql
    from londiste.applied_execute e
    where e.execute_file = i_file_name
    for update;

    if sha256(convert_to(_old_sql, 'UTF8')) = sha256(convert_to(i_sql, 'UTF8')) then
        ret_code := 201;
        ret_note := 'EXECUTE: "' || i_file_name || '" already applied, skipping';
    elsif _root then
        ret_code := 409;
        ret_note := 'EXECUTE: "' || i_file_name || '" was applied with other content,'
            || ' give the changed script a new name';
    else
        update londiste.applied_execute e
        set queue_name = i_queue_name,
            execute_time = now(),
            execute_sql = i_sql,
            execute_attrs = i_attrs
        where e.execute_file = i_file_name;
        ret_code := 200;
        ret_note := 'Executing: ' || i_file_name;
    end if;
end;
$$;

create or replace function londiste.execute_start(
    in i_queue_name text,
    in i_file_name text,
    in i_sql text,
    in i_expect_root boolean,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Begin a script that applies everywhere.
--
-- Parameters, returns, writes, raises: as with i_attrs.
-- ----------------------------------------------------------------------
begin
    select r.ret_code, r.ret_note
    into ret_code, ret_note
    from londiste.execute_start(i_queue_name, i_file_name, i_sql, i_expect_root, null) r;
end;
$$;
