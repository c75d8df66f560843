create or replace function londiste.trigger_plan(
    in i_table_name text,
    in i_trg_args text[],
    in i_dest_table text,
    in i_node_type text,
    out wanted boolean,
    out timing text,
    out ops text,
    out format text,
    out skip boolean,
    out args text[])
language plpgsql
stable
as $$
-- ----------------------------------------------------------------------
-- Turn the arguments of add-table into the row trigger that they ask for.
--
-- Words: no_triggers and virtual_table want none; skip or SKIP keep the row out of the table;
-- tgflags= takes B/A before or after, I U D operations, L Q J format urlenc, sql or json, S skip.
-- Words for the registry are left out, everything else goes to the trigger as it is. A table
-- whose key is a unique index (see londiste.table_key) gets pkey=.
--
-- Parameters: i_table_name - name in the set; i_trg_args - words, or NULL; i_dest_table - name
--             on this node; i_node_type - root, branch or leaf.
-- Returns: wanted; timing before or after; ops from IUD; format json, urlenc or sql; skip;
--          args for the trigger without the queue.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _arg text;
    _flags text := '';
    _forced_extra1 boolean := false;
    _keyed boolean := false;
    _partitioned boolean;
begin
    wanted := true;
    skip := false;
    args := '{}';

    foreach _arg in array coalesce(i_trg_args, '{}')
    loop
        if _arg in ('no_triggers', 'virtual_table') then
            wanted := false;
        elsif lower(_arg) = 'skip' then
            skip := true;
        elsif _arg like 'tgflags=%' then
            _flags := upper(substr(_arg, 9));
        elsif _arg not in ('expect_sync', 'skip_truncate', 'merge_all', 'no_merge') then
            if _arg like 'ev_extra1=%' then
                _forced_extra1 := true;
            end if;
            _keyed := _keyed or _arg like 'pkey=%';
            args := args || _arg;
        end if;
    end loop;

    select c.relkind = 'p'
    into _partitioned
    from pg_catalog.pg_class c
    where c.oid = londiste.find_table_oid(i_dest_table);

    skip := skip or _flags like '%S%';
    -- A row can be kept out before it is stored only, so skip alone means before; not on a root, where it would
    -- lose the row unless somebody says B too.
    timing := case
        when _flags like '%B%' then 'before'
        when _flags like '%A%' then 'after'
        when skip and i_node_type <> 'root' then 'before'
        else 'after'
    end;
    ops := case when _flags like '%I%' then 'I' else '' end
        || case when _flags like '%U%' then 'U' else '' end
        || case when _flags like '%D%' then 'D' else '' end;
    if ops = '' then
        ops := 'IUD';
    end if;
    format := case
        when _flags like '%L%' then 'urlenc'
        when _flags like '%Q%' then 'sql'
        when _flags like '%J%' then 'json'
        -- A trigger that only refuses writes needs no format; the first bytes of json events
        -- would name the partition instead of the table.
        when i_node_type = 'leaf' or _partitioned then 'urlenc'
        when to_regprocedure('pgq.jsontriga()') is null then 'urlenc'
        else 'json'
    end;

    -- By itself a trigger knows the primary key only. One that refuses writes needs none.
    if not _keyed and i_node_type <> 'leaf'
        and position('k' in londiste.find_column_types(i_dest_table)) = 0
        and cardinality(londiste.table_key(i_dest_table)) > 0
    then
        args := args || ('pkey=' || array_to_string(londiste.table_key(i_dest_table), ','));
    end if;

    -- Events carry the name in the set; by itself a trigger writes the name of its relation.
    if not _forced_extra1 and (i_dest_table <> i_table_name or _partitioned) then
        args := args || ('ev_extra1=' || quote_literal(i_table_name));
    end if;
end;
$$;
