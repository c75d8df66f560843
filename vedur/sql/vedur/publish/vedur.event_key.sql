create or replace function vedur.event_key(i_event_id bigint, i_type text, i_data text, i_columns text[])
returns jsonb
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Reads columns of the key of the row that an event is about. A key tells which row it is before and after the event: another key
-- is another row, and capture writes two events. So what is decided by these columns alone is the same for all events of a row.
--
-- Parameters:
--     i_event_id      number of the event, for messages
--     i_type          ev_type
--     i_data          ev_data
--     i_columns       the columns
-- Returns: their values by name, as texts or as JSON has them; null for what is no insert, update or delete of a row
-- Writes: nothing
-- Raises: data_corrupted where the event cannot be read, or where one of the columns is not of its key
-- ----------------------------------------------------------------------
declare
    _type jsonb;
    _row jsonb;
    _keys text[];
    _found jsonb := '{}';
    _padded text;
    _at integer;
    _pair text;
    _name text;
    _why text;
begin
    begin
        if left(i_type, 2) in ('I:', 'U:', 'D:') then
            _keys := string_to_array(substr(i_type, 3), ',');
            if i_data is null then
                _why := 'it cannot be read: it has no data';
            end if;
            _padded := '&' || i_data || '&';
            foreach _name in array i_columns loop
                -- Most names are encoded as they are, so the pair is found without looking at the others.
                _at := strpos(_padded, '&' || _name || '=');
                if _at > 0 and _name !~ '[^A-Za-z0-9_.-]' then
                    _pair := substr(_padded, _at + length(_name) + 2);
                    _pair := left(_pair, strpos(_pair, '&') - 1);
                    _found := _found || jsonb_build_object(
                        _name, case when _pair ~ '[%+]' then vedur.urldecode(_pair) else _pair end);
                else
                    -- without "=" it is NULL, which is neither "" nor a missing column
                    _found := _found || coalesce((
                        select jsonb_build_object(
                            _name, case when strpos(p.pair, '=') > 0 then vedur.urldecode(substr(p.pair, strpos(p.pair, '=') + 1)) end)
                        from unnest(string_to_array(i_data, '&')) as p (pair)
                        where vedur.urldecode(split_part(p.pair, '=', 1)) = _name), '{}');
                end if;
            end loop;
        elsif i_type like '{%' then
            _type := i_type;
            if _type ->> 'op' is null or _type ->> 'op' not in ('INSERT', 'UPDATE', 'DELETE') then
                return null;
            end if;
            _keys := array(select jsonb_array_elements_text(coalesce(_type -> 'pkey', '[]')));
            _row := i_data;
            foreach _name in array i_columns loop
                if _row ? _name then
                    _found := _found || jsonb_build_object(_name, _row -> _name);
                end if;
            end loop;
        elsif i_type in ('I', 'U', 'D') then
            _why := 'it is a fragment of SQL';
        else
            return null;
        end if;
    exception
        when data_exception or program_limit_exceeded then
            _why := 'it cannot be read: ' || sqlerrm;
    end;
    if _why is null and _keys @> i_columns and _found ?& i_columns then
        return _found;
    end if;
    raise exception 'event % does not tell the row by %: %',
        i_event_id, array_to_string(i_columns, ', '),
        coalesce(_why, 'its key is ' || coalesce(nullif(array_to_string(_keys, ', '), ''), 'empty'))
        using errcode = 'data_corrupted';
end;
$$;
