create or replace function londiste.global_update_seq(
    in i_queue_name text,
    in i_seq_name text,
    in i_value bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Store the value that the root published for a sequence, and follow it if it is here.
--
-- Parameters: i_queue_name - cascaded queue; i_seq_name - sequence; i_value - published value.
-- Returns: 200 done; 402 this is the root; 404 no such set.
-- Writes: londiste.seq_info, the sequence (forwards only, and not beyond its bound).
-- Raises: errors of pgq.seq_getval when the local sequence is gone.
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_seq_name);
    _type text;
    _local boolean;
begin
    select n.node_type
    into _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Set not found: ' || i_queue_name;
        return;
    end if;
    if _type = 'root' then
        ret_code := 402;
        ret_note := 'Must not run on root node';
        return;
    end if;

    insert into londiste.seq_info as s (queue_name, seq_name, last_value)
    values (i_queue_name, _name, i_value)
    on conflict (queue_name, seq_name) do update
    set last_value = excluded.last_value
    returning s.local
    into _local;
    if _local then
        perform londiste.follow_seq(_name, i_value);
    end if;

    ret_code := 200;
    ret_note := 'Sequence updated';
end;
$$;
