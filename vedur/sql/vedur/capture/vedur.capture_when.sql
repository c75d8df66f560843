create or replace function vedur.capture_when(i_value anyelement)
returns boolean
language plpgsql
immutable parallel safe
as $$
-- Check the value of a when= expression of a capture trigger.
--
-- Parameters: i_value - what the expression gave.
-- Returns: i_value.
-- Writes: nothing.
-- Errors: the value is not boolean; the value is NULL.
begin
    if pg_typeof(i_value) <> 'pg_catalog.bool'::pg_catalog.regtype then
        raise exception 'when= query result must be boolean, got=%', pg_typeof(i_value)::oid
            using errcode = 'datatype_mismatch';
    end if;
    if i_value is null then
        raise exception 'when= should not be NULL'
            using errcode = 'null_value_not_allowed';
    end if;
    return i_value;
end;
$$;
