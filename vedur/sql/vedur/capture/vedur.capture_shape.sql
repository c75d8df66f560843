create or replace function vedur.capture_shape(i_relid regclass)
returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
-- Describe all that generated capture depends on: name, columns with types, key of a table, and the form of the
-- function itself, so that functions of an earlier form count as stale.
--
-- Parameters: i_relid - the table.
-- Returns: a digest that differs when the shape differs; an empty text if there is no such table.
-- Writes: nothing.
--
-- Declared immutable although it is not, on purpose: with a constant argument it is computed when a
-- statement is planned, and the regclass constant makes that plan depend on the table, so that every
-- ALTER TABLE, also one of the same transaction, makes each session plan and compare again.
begin
    if not exists (select from pg_class where oid = i_relid) then
        return '';
    end if;
    return md5(concat_ws(
        ' ', 'form 3', i_relid::text, vedur.capture_key(i_relid, null)::text,
        (select string_agg(format('%s deferrable', i.indexrelid::regclass), ',' order by i.indexrelid)
         from pg_index as i
         where i.indrelid = i_relid and i.indisunique and not i.indimmediate),
        (select string_agg(format('%I %s', c.col_name, format_type(c.col_type, null)), ',' order by c.col_nr)
         from vedur.capture_columns(i_relid) as c)));
end;
$$;
