create or replace function vedur.capture_key_literal(i_value text)
returns text
language plpgsql
immutable parallel safe
as $$
-- Quote a primary key value for the where clause of an sqltriga event.
--
-- Parameters: i_value - the value's text.
-- Returns: the quoted literal.
-- Writes: nothing.
-- Errors: the value is NULL, so that no row could be found by it.
begin
    if i_value is null then
        raise exception 'logtriga: Unexpected NULL key value'
            using errcode = 'not_null_violation';
    end if;
    return quote_literal(i_value);
end;
$$;
