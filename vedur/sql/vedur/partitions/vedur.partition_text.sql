create or replace function vedur.partition_text(
    i_template text,
    i_words jsonb)
returns text
language plpgsql
immutable
as $$
-- ----------------------------------------------------------------------
-- Fill a template: %(word)s becomes the word's value, %% a percent sign.
--
-- Parameters:
--     i_template    text
--     i_words       values by word
-- Returns: the text; what a value holds is not looked at again
-- Writes: nothing
-- Raises: nothing; an unknown word is left as it is
-- ----------------------------------------------------------------------
declare
    _found text[];
    _rest text := i_template;
    _text text := '';
begin
    loop
        _found := regexp_match(_rest, E'^(.*?)(%%|%\\(([a-z_]+)\\)s)(.*)$');
        exit when _found is null;
        _text := _text || _found[1]
            || case when _found[2] = '%%' then '%' else coalesce(i_words ->> _found[3], _found[2]) end;
        _rest := _found[4];
    end loop;
    return _text || _rest;
end;
$$;
