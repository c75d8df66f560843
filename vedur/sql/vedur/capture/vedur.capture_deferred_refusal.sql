create or replace function vedur.capture_deferred_refusal(i_table_name text, i_trigger_name text, i_ignored text[])
returns text
language sql
immutable
as $$
-- Tell why a table with a deferrable key cannot be captured as asked for.
--
-- Parameters: i_table_name - for the message; i_trigger_name - the capture to be; i_ignored - columns of ignore=.
-- Returns: the reason, or NULL if there is none.
-- Writes: nothing.
--
-- Constraint triggers of one row fire in the order of their names. Those that check keys are called PK_... and
-- Unique_...; capture comes after them, when the transactions that held the key before are over.
    select case
        when cardinality(i_ignored) > 0 then format(
            'table "%s" has a DEFERRABLE key, so that its rows are written anew as a whole: leave ignore= away,'
                ' or make the key NOT DEFERRABLE', i_table_name)
        when i_trigger_name collate "C" < 'V' then format(
            'table "%s" has a DEFERRABLE key: the name of its trigger must sort after "Unique", "%s" does not',
            i_table_name, i_trigger_name)
    end
$$;
