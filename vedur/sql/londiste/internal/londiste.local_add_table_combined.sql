create or replace function londiste.local_add_table_combined(
    in i_combined_queue text,
    in i_table_name text,
    in i_trg_args text[],
    in i_table_attrs text,
    in i_dest_table text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- A part takes a table to this node: the combined queue passes it on, so it has it as well.
--
-- Parameters: i_combined_queue - queue that the part is merged into; the rest as for
--             londiste.local_add_table. The part copies the data, so the combined queue's
--             table is in sync by definition; what its attributes say of merging is the part's.
-- Returns: code and note of londiste.local_add_table; 200 when it is there already.
-- Writes: londiste.table_info, triggers; on root of the combined queue event londiste.add-table.
-- Raises: nothing of its own.
-- ----------------------------------------------------------------------
begin
    ret_code := 200;
    ret_note := 'Ok';
    if exists (
        select 1
        from londiste.table_info t
        where t.queue_name = i_combined_queue
            and t.table_name = i_table_name
            and t.local
    ) then
        return;
    end if;

    perform londiste.global_add_table(i_combined_queue, i_table_name);
    select r.ret_code, r.ret_note
    into ret_code, ret_note
    from londiste.local_add_table(
        i_combined_queue, i_table_name,
        array_append(array_remove(array_remove(i_trg_args, 'merge_all'), 'no_merge'), 'expect_sync'),
        nullif(ltrim(regexp_replace('&' || i_table_attrs, '&(merge|max_parallel_copy)(=[^&]*)?(?=&|$)', '', 'g'), '&'), ''),
        i_dest_table) r;
end;
$$;
