create or replace function vedur.capture_value(i_type oid, i_ref text, i_format text)
returns text
language plpgsql
stable
as $$
-- Write the SQL expression that turns one column into text of an event format.
--
-- Parameters: i_type - the column's type; i_ref - how the statement refers to the column;
--     i_format - "text" for what the type's output function gives, "urlenc", or "json" for a value
--     that row_to_json writes as upstream's jsontriga does.
-- Returns: the expression; it gives NULL for NULL.
-- Writes: nothing.
--
-- A cast to text is used for types where it equals the output function (not so for boolean, char(n)
-- and inet) and where no user-defined cast can come in between; all others go through concat(), which
-- always calls the output function.
declare
    _text text;
begin
    if i_format = 'json' and i_type in (
        'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'bool'::regtype, 'date'::regtype,
        'timestamp'::regtype, 'timestamptz'::regtype, 'text'::regtype, 'varchar'::regtype,
        'bpchar'::regtype, 'name'::regtype, 'uuid'::regtype, 'inet'::regtype, 'cidr'::regtype,
        'interval'::regtype, 'bytea'::regtype, 'time'::regtype, 'timetz'::regtype) then
        return i_ref;
    end if;
    if i_type = 'bool'::regtype then
        return format('case when %1$s then ''t'' when not %1$s then ''f'' end', i_ref);
    end if;
    if i_type in (
        'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype, 'float4'::regtype,
        'float8'::regtype, 'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype,
        'uuid'::regtype, 'text'::regtype, 'varchar'::regtype) then
        _text := i_ref || '::pg_catalog.text';
    else
        -- num_nulls and not "is null", which is also true for a composite of NULLs.
        _text := format(
            'case when pg_catalog.num_nulls(%1$s) operator(pg_catalog.=) 0 then pg_catalog.concat(%1$s) end', i_ref);
    end if;
    if i_format <> 'urlenc' or i_type in (
        'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype) then
        return _text;
    end if;
    -- These types have few characters to encode, so that no function call is needed.
    return case
        when i_type in ('numeric'::regtype, 'float4'::regtype, 'float8'::regtype) then
            format('pg_catalog.replace(%s, ''+'', ''%%2b'')', _text)
        when i_type = 'date'::regtype then
            format('pg_catalog.replace(%s, '' '', ''+'')', _text)
        when i_type in ('timestamp'::regtype, 'timestamptz'::regtype) then
            format(
                'pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(%s, ''+'', ''%%2b''), '
                    ''' '', ''+''), '':'', ''%%3a'')', _text)
        else format('vedur.urlencode(%s)', _text)
    end;
end;
$$;
