create or replace function londiste.version()
returns text
language plpgsql
as $$
begin
    -- Version of the londiste contract that this schema keeps.
    --
    -- Returns: text, never NULL.
    -- Writes: nothing.
    -- Raises: nothing.

    return '3.8';
end;
$$;
