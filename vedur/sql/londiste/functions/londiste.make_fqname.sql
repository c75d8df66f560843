create or replace function londiste.make_fqname(i_name text)
returns text
language plpgsql
immutable
strict
as $$
-- ----------------------------------------------------------------------
-- Give a name its schema: one without a dot is in public.
--
-- Parameters: i_name - name, not quoted.
-- Returns: schema.name, not quoted; NULL for NULL.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    if position('.' in i_name) > 0 then
        return i_name;
    end if;
    return 'public.' || i_name;
end;
$$;
