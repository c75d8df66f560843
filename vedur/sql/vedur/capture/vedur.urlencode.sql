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
begin
    if i_value !~ '[^A-Za-z0-9_.-]' then
        return i_value;
    end if;
    -- A short ASCII text is mostly made of these; each replace costs less than one regexp step.
    i_value := replace(replace(replace(replace(i_value, '%', '%25'), '+', '%2b'), ' ', '+'), ':', '%3a');
    if i_value !~ '[^A-Za-z0-9_.%+-]' then
        return i_value;
    end if;
    return (
        select string_agg(
            case
                when p[2] is null then p[1]
                else regexp_replace(
                    encode(convert_to(p[2], getdatabaseencoding()), 'hex'),
                    '(..)', '%\1', 'g')
            end, '' order by n)
        from regexp_matches(i_value, '([A-Za-z0-9_.%+-]+)|([^A-Za-z0-9_.%+-]+)', 'g')
            with ordinality as m (p, n)
    );
end;
$$;
