create or replace function vedur.capture_guard(i_relid oid, i_compares boolean default false)
returns void
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- Refuse a table that could use the rights of the role that its capture runs as.
--
-- Parameters: i_relid - a table whose capture runs as its owner; i_compares - whether keys are compared, too.
-- Returns: nothing.
-- Writes: nothing.
-- Errors: insufficient_privilege, if the table has a column _pgq_ev_*: its value would be the type or the content of
--     the event, and anybody who writes the table could run scripts (EXECUTE) on all nodes. Such a table needs the
--     contract's trigger, which runs as the writer; vedur.create_capture makes it. The same, where keys are
--     compared and one has a user-defined type: its casts are functions of the type's owner.
--
-- Both are looked at when a capture is made, but the owner of a table may alter it later.
declare
    _column text;
    _type regtype;
begin
    select c.col_name, case when c.magic is null then c.col_type end into _column, _type
    from vedur.capture_columns(i_relid) as c
    where c.magic is not null
        or i_compares
            and c.col_type >= 16384
            and c.col_name = any (vedur.capture_key(i_relid, null))
    limit 1;
    if _column is null then
        return;
    end if;
    if _type is null then
        raise exception 'table "%" has a column "%", which its capture does not accept', i_relid::regclass, _column
            using errcode = 'insufficient_privilege',
                detail = 'The column would choose the content of events, and this capture writes them as its owner.',
                hint = 'Drop or rename the column, or remove the table from the set and add it again.';
    end if;
    raise exception 'key column "%" of table "%" has type %, which bulk capture does not accept', _column, i_relid::regclass, _type
        using errcode = 'insufficient_privilege',
            hint = 'Capture the table in mode "row".';
end;
$$;
