create or replace function londiste.global_remove_seq(
    in i_queue_name text,
    in i_seq_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Forget a sequence that left the set; on the root it leaves now, and all nodes are told.
--
-- Parameters: i_queue_name - cascaded queue; i_seq_name - sequence.
-- Returns: 200 done; 400 not in the set.
-- Writes: londiste.seq_info; on root event londiste.remove-seq.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_seq_name);
begin
    delete from londiste.seq_info s
    where s.queue_name = i_queue_name
        and s.seq_name = _name;
    if not found then
        ret_code := 400;
        ret_note := 'Sequence not found: ' || _name;
        return;
    end if;

    if pgq_node.is_root_node(i_queue_name) then
        perform londiste.root_notify_change(i_queue_name, 'londiste.remove-seq', _name);
    end if;
    ret_code := 200;
    ret_note := 'Sequence removed: ' || _name;
end;
$$;
