create or replace function vedur.urlencode(i_value text)
returns text
language plpgsql
immutable strict parallel safe
as $$
-- Encode a value for the urlenc event format.
--
-- Parameters: i_value - the text.
-- Returns: the text with blanks as "+", letters, digits and "_.-" as they are, every other byte of
--     its UTF-8 (server encoding) form as %xx in lower case; NULL for NULL.
-- Writes: nothing.
--
-- Capture calls it as the owner of the queue under the search_path of any user, so every name in it
-- carries its schema.
begin
    if i_value operator(pg_catalog.!~) '[^A-Za-z0-9_.-]' then
        return i_value;
    end if;
    -- A short ASCII text is mostly made of these; each replace costs less than one regexp step.
    i_value := pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
        i_value, '%', '%25'), '+', '%2b'), ' ', '+'), ':', '%3a');
    if i_value operator(pg_catalog.!~) '[^A-Za-z0-9_.%+-]' then
        return i_value;
    end if;
    return (
        select pg_catalog.string_agg(
            case
                when p[2] is null then p[1]
                else pg_catalog.regexp_replace(
                    pg_catalog.encode(
                        pg_catalog.convert_to(p[2], pg_catalog.getdatabaseencoding()), 'hex'),
                    '(..)', E'%\\1', 'g')
            end, '' order by n)
        from pg_catalog.regexp_matches(i_value, '([A-Za-z0-9_.%+-]+)|([^A-Za-z0-9_.%+-]+)', 'g')
            with ordinality as m (p, n)
    );
end;
$$;
