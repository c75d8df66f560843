create or replace function londiste.get_seq_list(
    in i_queue_name text,
    out seq_name text,
    out last_value bigint,
    out local boolean)
returns setof record
language plpgsql
strict
as $$
-- ----------------------------------------------------------------------
-- List the sequences of a set as this node sees them.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: one row per sequence with the value published last, in the order they were
--          added; no rows for an unknown queue.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
begin
    return query
        select s.seq_name, s.last_value, s.local
        from londiste.seq_info s
        where s.queue_name = i_queue_name
        order by s.nr;
end;
$$;
