create or replace function vedur.merge_on_time(
    i_conf text,
    i_tick text,
    i_ev_id text,
    i_ev_time text,
    i_ev_txid text,
    i_ev_retry text,
    i_ev_type text,
    i_ev_data text,
    i_ev_extra1 text,
    i_ev_extra2 text,
    i_ev_extra3 text,
    i_ev_extra4 text)
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Apply a change of one of several roots to a row, unless the row here is as new: the conflict
-- function of handler multimaster, with the arguments that applyfn gives.
--
-- Of two versions of a row, the one with the later time in a column of the row stays. A row that is
-- not here is inserted, also by an update. A delete counts as the version that it deletes, so it
-- comes only where that is newer than the row here.
--
-- Parameters:
--     i_conf      urlencoded: timefield, the column that decides; altpk, columns by which the row is
--                 found instead of its key (a row that is found with another key is deleted);
--                 fkey_ref_table, fkey_ref_cols, fkey_cols: without such a row there, the change is
--                 left out; table, the table here where it is not i_ev_extra1. Columns are
--                 separated by commas.
--     i_ev_type, i_ev_data    the change, urlencoded or JSON
--     i_ev_extra1             the table
--     the others              not used
-- Returns: what was done: insert, update, delete; or ignored, with the reason
-- Writes: the table
-- Raises: for a change that cannot be read, and for times that cannot be compared
-- ----------------------------------------------------------------------
declare
    _conf jsonb := vedur.urldecode_row(i_conf);
    _name text := coalesce(_conf ->> 'table', i_ev_extra1);
    _table text := londiste.quote_fqname(_name);
    _oid oid := londiste.find_table_oid(_name);
    _time text := _conf ->> 'timefield';
    _alt text[] := string_to_array(_conf ->> 'altpk', ',');
    _json boolean := i_ev_type like '{%';
    _only text;
    _op text;
    _key text[];
    _names text[];
    _row jsonb;
    _source text;
    _missing text;
    _found record;
    _done bigint;
begin
    if _oid is null then
        raise exception 'table "%" does not exist', _name using errcode = 'undefined_table';
    end if;
    select case c.relkind when 'p' then '' else 'only' end into _only
    from pg_catalog.pg_class as c where c.oid = _oid;

    -- what the event says
    if _json then
        _op := left(i_ev_type::json ->> 'op', 1);
        _key := array(select json_array_elements_text(i_ev_type::json -> 'pkey'));
        _names := array(select json_object_keys(i_ev_data::json));
    elsif i_ev_type ~ '^[IUD]:.' then
        _op := left(i_ev_type, 1);
        _key := string_to_array(substr(i_ev_type, 3), ',');
        _row := vedur.urldecode_row(i_ev_data);
        _names := array(select jsonb_object_keys(_row));
    end if;
    if _op is null or _op not in ('I', 'U', 'D') or coalesce(cardinality(_key), 0) = 0 then
        raise exception 'an event of type "%" is no change of a whole row with a key', i_ev_type
            using errcode = 'invalid_parameter_value';
    end if;
    if _time is null or _time <> all (_names) then
        raise exception 'the change has no column "%" (timefield)', coalesce(_time, '')
            using errcode = 'invalid_parameter_value';
    end if;
    select n.name into _missing
    from unnest(_names) as n (name)
    where not exists (
        select from pg_catalog.pg_attribute as a
        where a.attrelid = _oid and a.attname = n.name and a.attnum > 0 and not a.attisdropped)
    limit 1;
    if found then
        raise exception 'column "%" is missing in table "%"', _missing, _name using errcode = 'undefined_column';
    end if;

    -- its row, as a relation of one row with the types of the table
    if _json then
        _source := format('pg_catalog.json_populate_record(null::%s, %L::pg_catalog.json)', _table, i_ev_data);
    else
        select format('(select %s)', string_agg(
            format('%L::%s as %I', _row ->> a.attname, pg_catalog.format_type(a.atttypid, -1), a.attname),
            ', ' order by a.attnum))
        into _source
        from pg_catalog.pg_attribute as a
        where a.attrelid = _oid and a.attname = any (_names) and a.attnum > 0;
    end if;

    if _conf ->> 'fkey_ref_table' is not null then
        execute format(
            'select 1 from only %s as r, %s as n where %s',
            londiste.quote_fqname(_conf ->> 'fkey_ref_table'), _source, (
                select string_agg(format('r.%I = n.%I', c.there, c.here), ' and ' order by c.nr)
                from rows from (
                    unnest(string_to_array(_conf ->> 'fkey_ref_cols', ',')),
                    unnest(string_to_array(_conf ->> 'fkey_cols', ','))
                ) with ordinality as c (there, here, nr)));
        get diagnostics _done = row_count;
        if _done = 0 then
            return 'ignored: its row of ' || (_conf ->> 'fkey_ref_table') || ' is not here';
        end if;
    end if;

    for _attempt in 1 .. 2 loop
        execute format(
            'select n.%1$I::text as time, d.%1$I::text as here, n.%1$I > d.%1$I as newer, %2$s as same'
            ' from %3$s %4$s as d, %5$s as n where %6$s for update of d',
            _time, vedur.columns_equal('d', 'n', _key), _only, _table, _source,
            vedur.columns_equal('d', 'n', coalesce(_alt, _key)))
        into _found;
        get diagnostics _done = row_count;
        if _done > 0 and not _found.same then
            execute format(
                'delete from %s %s as d using %s as n where %s',
                _only, _table, _source, vedur.columns_equal('d', 'n', _alt));
            _done := 0;
        end if;

        if _done > 0 then
            if coalesce(_found.time, '') !~ '^[0-9]' or coalesce(_found.here, '') !~ '^[0-9]' then
                raise exception 'column "%" (timefield) cannot be compared: "%" came, "%" is here',
                    _time, coalesce(_found.time, 'NULL'), coalesce(_found.here, 'NULL')
                    using errcode = 'invalid_parameter_value';
            end if;
            if not _found.newer then
                return 'ignored: the row here is as new';
            end if;
        end if;

        if _op = 'D' then
            execute format(
                'delete from %s %s as d using %s as n where %s',
                _only, _table, _source, vedur.columns_equal('d', 'n', _key));
            return 'delete';
        elsif _done > 0 then
            execute format(
                'update %s %s as d set %s from %s as n where %s',
                _only, _table, (
                    select string_agg(format('%1$I = n.%1$I', a.attname), ', ' order by a.attnum)
                    from pg_catalog.pg_attribute as a
                    where a.attrelid = _oid and a.attname = any (_names) and a.attname <> all (_key)
                        and a.attnum > 0 and a.attgenerated = '' and a.attidentity <> 'a'),
                _source, vedur.columns_equal('d', 'n', _key));
            return 'update';
        end if;
        begin
            execute (
                select format(
                    'insert into %s (%s) overriding system value select %s from %s as n', _table,
                    string_agg(quote_ident(a.attname), ', ' order by a.attnum),
                    string_agg('n.' || quote_ident(a.attname), ', ' order by a.attnum), _source)
                from pg_catalog.pg_attribute as a
                where a.attrelid = _oid and a.attname = any (_names) and a.attnum > 0 and a.attgenerated = '');
            return 'insert';
        exception when unique_violation then
            -- another root's change may have brought the row at this moment: then it is seen now
            if _attempt = 2 then
                raise;
            end if;
        end;
    end loop;
end;
$$;
