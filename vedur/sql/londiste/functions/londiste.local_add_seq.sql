create or replace function londiste.local_add_seq(
    in i_queue_name text,
    in i_seq_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Take a sequence to this node: on the root it joins the set, elsewhere it follows the
-- published value and never goes back.
--
-- Parameters: i_queue_name - cascaded queue; i_seq_name - sequence.
-- Returns: 200 added; 201 added before; 400 no such sequence here; 404 not in the set.
-- Writes: londiste.seq_info, the sequence; on root event londiste.update-seq.
-- Raises: "queue does not exist".
-- ----------------------------------------------------------------------
declare
    _name text := londiste.make_fqname(i_seq_name);
    _root boolean;
    _old record;
    _found boolean;
begin
    if londiste.find_seq_oid(_name) is null then
        ret_code := 400;
        ret_note := 'Sequence not found: ' || _name;
        return;
    end if;

    _root := pgq_node.is_root_node(i_queue_name);
    select s.local, s.last_value
    into _old
    from londiste.seq_info s
    where s.queue_name = i_queue_name
        and s.seq_name = _name
    for update;
    _found := found;
    if _found and _old.local then
        ret_code := 201;
        ret_note := 'Sequence already added: ' || _name;
        return;
    end if;

    if _root then
        -- one that counts down begins at its own value: less than that has not been published
        insert into londiste.seq_info as s (queue_name, seq_name, local, last_value)
        select i_queue_name, _name, true, case when q.seqincrement > 0 then 0 else pgq.seq_getval(_name) end
        from pg_catalog.pg_sequence q
        where q.seqrelid = londiste.find_seq_oid(_name)
        on conflict (queue_name, seq_name) do update
        set local = true,
            last_value = excluded.last_value;
        perform londiste.root_check_seqs(i_queue_name);
    elsif not _found then
        ret_code := 404;
        ret_note := 'Unknown sequence: ' || _name;
        return;
    else
        update londiste.seq_info s
        set local = true
        where s.queue_name = i_queue_name
            and s.seq_name = _name;
        perform londiste.follow_seq(_name, _old.last_value);
    end if;

    ret_code := 200;
    ret_note := 'Sequence added: ' || _name;
end;
$$;
