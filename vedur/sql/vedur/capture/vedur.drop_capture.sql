create or replace function vedur.drop_capture(
    i_table_name text,
    i_trigger_name text,
    out ret_code int,
    out ret_note text)
language sql
as $$
-- Drop a capture: all its triggers, and their function.
--
-- Parameters: i_table_name - as for regclass; i_trigger_name.
-- Returns: 200 dropped; 404 there is none.
-- Writes: triggers of the table, functions of schema vedur_work.
    select d.ret_code, d.ret_note
    from vedur.drop_capture_triggers(i_table_name, i_trigger_name, true) as d
$$;
