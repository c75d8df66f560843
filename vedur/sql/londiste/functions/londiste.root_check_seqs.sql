create or replace function londiste.root_check_seqs(
    in i_queue_name text,
    in i_buffer bigint,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Publish sequences of the root ahead of their use: when less than the buffer is left before
-- the published value, the next one is three buffers ahead, or the bound of the sequence.
--
-- Parameters: i_queue_name - cascaded queue; i_buffer - values.
-- Returns: 100 done; 402 not root; 404 no such queue.
-- Writes: londiste.seq_info, events londiste.update-seq.
-- Raises: nothing; a sequence that is gone from the database is passed over.
-- ----------------------------------------------------------------------
declare
    _type text;
    _seq record;
    _value bigint;
    _ahead bigint;
    _due boolean;
begin
    select n.node_type
    into _type
    from pgq_node.node_info n
    where n.queue_name = i_queue_name;
    if not found then
        ret_code := 404;
        ret_note := 'Queue not found: ' || i_queue_name;
        return;
    end if;
    if _type <> 'root' then
        ret_code := 402;
        ret_note := 'Not a root node';
        return;
    end if;

    for _seq in
        select s.seq_name, s.last_value, q.seqincrement > 0 as up, q.seqmin, q.seqmax
        from londiste.seq_info s
        join pg_catalog.pg_sequence q on q.seqrelid = londiste.find_seq_oid(s.seq_name)
        where s.queue_name = i_queue_name
            and s.local
        order by s.nr
    loop
        _value := pgq.seq_getval(_seq.seq_name);
        -- numeric: the sum may be beyond a bigint
        _ahead := case
            when _seq.up then least(_value + i_buffer * 3::numeric, _seq.seqmax)
            else greatest(_value - i_buffer * 3::numeric, _seq.seqmin)
        end;
        _due := case
            when _seq.up then _value + i_buffer::numeric >= _seq.last_value
            else _value - i_buffer::numeric <= _seq.last_value
        end;
        if _due and _ahead <> _seq.last_value then
            perform pgq.insert_event(
                i_queue_name, 'londiste.update-seq', _ahead::text, _seq.seq_name, null, null, null);
            update londiste.seq_info s
            set last_value = _ahead
            where s.queue_name = i_queue_name
                and s.seq_name = _seq.seq_name;
        end if;
    end loop;

    ret_code := 100;
    ret_note := 'Sequences updated';
end;
$$;

create or replace function londiste.root_check_seqs(
    in i_queue_name text,
    out ret_code integer,
    out ret_note text)
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Publish sequences of the root with a buffer of 10000 values.
--
-- Parameters, returns, writes, raises: as with i_buffer.
-- ----------------------------------------------------------------------
begin
    select r.ret_code, r.ret_note
    into ret_code, ret_note
    from londiste.root_check_seqs(i_queue_name, 10000) r;
end;
$$;
