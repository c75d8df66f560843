create or replace function londiste.split_fqname(
    in i_fqname text,
    out schema_part text,
    out name_part text)
language plpgsql
immutable
strict
as $$
-- ----------------------------------------------------------------------
-- Take a name apart at its first dot.
--
-- Parameters: i_fqname - name, not quoted.
-- Returns: schema and name, schema public when there is no dot; NULLs for NULL.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _dot integer := position('.' in i_fqname);
begin
    if _dot > 0 then
        schema_part := substr(i_fqname, 1, _dot - 1);
        name_part := substr(i_fqname, _dot + 1);
    else
        schema_part := 'public';
        name_part := i_fqname;
    end if;
end;
$$;
