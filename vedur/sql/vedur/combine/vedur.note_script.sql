create or replace function vedur.note_script(i_file_name text, i_sql text, i_origin text)
returns boolean
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Notes that a set has brought a script to this node, and tells whether another set has brought the same one as often before.
-- Then it has run here. A root never runs one text of a name twice in a row, so where one set brings A, B and A again, its root
-- has run all three; where three sets bring A, B and A, the third is the script of the first.
--
-- Parameters:
--     i_file_name     name of the script
--     i_sql           its text
--     i_origin        queue of the set that brought it: of the part, where it came through a combined queue
-- Returns: true if it has run here because of another set
-- Writes: vedur.brought_script; holds an advisory lock on the name until the transaction ends, so that of two sets which bring
--     a script at the same time one waits for the other
-- Raises: nothing
-- ----------------------------------------------------------------------
declare
    _hash bytea := sha256(convert_to(i_sql, 'UTF8'));
    _times integer;
begin
    perform pg_advisory_xact_lock(hashtextextended('vedur.note_script ' || i_file_name, 0));
    insert into vedur.brought_script as b (execute_file, text_hash, origin)
    values (i_file_name, _hash, i_origin)
    on conflict (execute_file, text_hash, origin) do update set times = b.times + 1
    returning b.times into _times;
    return exists (
        select 1
        from vedur.brought_script b
        where b.execute_file = i_file_name and b.text_hash = _hash and b.origin <> i_origin and b.times >= _times);
end;
$$;
