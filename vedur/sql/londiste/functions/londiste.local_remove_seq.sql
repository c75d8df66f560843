create or replace function londiste.local_remove_seq(
    in i_queue_name text,
    in i_seq_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- Take a sequence from this node; on the root from the whole set.
--
-- Parameters: i_queue_name - cascaded queue; i_seq_name - sequence.
-- Returns: 200 done; 400 (root) or 404 not there.
-- Writes: londiste.seq_info; on root event londiste.remove-seq.
-- Raises: "queue does not exist".
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_seq_name);
begin
    if pgq_node.is_root_node(i_queue_name) then
        select r.ret_code, r.ret_note
        into ret_code, ret_note
        from londiste.global_remove_seq(i_queue_name, _name) r;
        return;
    end if;

    update londiste.seq_info s
    set local = false
    where s.queue_name = i_queue_name
        and s.seq_name = _name
        and s.local;
    if not found then
        ret_code := 404;
        ret_note := 'Sequence not found: ' || _name;
        return;
    end if;

    ret_code := 200;
    ret_note := 'Sequence removed: ' || _name;
end;
$$;
