create or replace function vedur.capture_slow(
    i_relid oid,
    i_op text,
    i_format text,
    i_args text[],
    i_new anyelement,
    i_old anyelement,
    i_ctid tid,
    i_xmax xid,
    i_old_xmin xid,
    i_trigger_name name)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set extra_float_digits = 1
set lc_monetary = 'C'
as $$
-- Write the events of one change where generated capture cannot: other settings, a table altered since,
-- a changed key, rows that are old already, a deferrable key, a queue with a limit or closed for writing.
--
-- Parameters: i_relid, i_op - as the TG_ variables; i_format - json, urlenc or sql; i_args - the arguments
--     with the queue name first; i_new, i_old - the rows; one that does not exist may be any row; i_ctid,
--     i_xmax, i_old_xmin - see vedur.capture_state; i_trigger_name - the trigger that fired. Events of a partition name
--     the table that it was made for.
-- Writes: the queue.
-- Errors: those of vedur.capture_guard, vedur.capture_plan, vedur.capture_state and pgq.insert_event.
declare
    _home oid := vedur.capture_home(i_relid, i_trigger_name);
    _plan record;
    _ev record;
begin
    perform vedur.capture_guard(i_relid);
    select * into _plan
    from vedur.capture_plan(_home, 'AFTER', case i_op when 'TRUNCATE' then 'STATEMENT' else 'ROW' end, i_op, i_format, i_args);
    if _plan.query is null then
        return;
    end if;
    if i_op <> 'TRUNCATE' then
        _plan.query := coalesce(
            vedur.capture_state(i_relid, i_op, i_format, i_args, i_new, i_old, i_ctid, i_xmax, i_old_xmin, true, _home),
            _plan.query);
    end if;
    for _ev in
        execute 'select * from (' || _plan.query || ') as e (t, d, e1, e2, e3, e4)' using i_new, i_old
    loop
        perform pgq.insert_event(
            _plan.queue_name, _ev.t, _ev.d, _ev.e1, _ev.e2, _ev.e3, _ev.e4);
    end loop;
end;
$$;

create or replace function vedur.capture_slow(
    i_relid oid,
    i_op text,
    i_format text,
    i_args text[],
    i_new anyelement,
    i_old anyelement,
    i_ctid tid,
    i_xmax xid,
    i_old_xmin xid)
returns void
language sql
as $$
-- Write the events of one change, for capture functions of an earlier form until they are written again.
--
-- Parameters: see above; nothing is known of the trigger.
-- Writes: the queue.
-- Errors: see above.
    select vedur.capture_slow(i_relid, i_op, i_format, i_args, i_new, i_old, i_ctid, i_xmax, i_old_xmin, null)
$$;

create or replace function vedur.capture_slow(
    i_relid oid,
    i_op text,
    i_format text,
    i_args text[],
    i_new anyelement,
    i_old anyelement)
returns void
language sql
as $$
-- Write the events of one change, for capture functions of the first form until they are written again.
--
-- Parameters: see above; nothing is known of the rows' versions, nor of the trigger.
-- Writes: the queue.
-- Errors: see above.
    select vedur.capture_slow(i_relid, i_op, i_format, i_args, i_new, i_old, null, null, null, null)
$$;
