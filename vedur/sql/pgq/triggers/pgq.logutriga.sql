create or replace function pgq.logutriga()
returns trigger
language plpgsql
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set bytea_output = 'hex'
set extra_float_digits = 1
set lc_monetary = 'C'
as $$
-- Trigger that writes each change of a table into a queue: rows urlencoded.
--
-- Parameters: queue name, then in any order SKIP, backup, deny, ignore=c1,c2, pkey=c1,c2, when=EXPR,
--     ev_type=EXPR, ev_data=EXPR, ev_extra1=EXPR to ev_extra4=EXPR.
-- Returns: the row, or NULL in a BEFORE trigger with SKIP.
-- Writes: one event per change with ev_type I:, U: or D: and the key columns (R: truncate), the row in ev_data;
--     a changed key makes a delete and an insert. Nothing in session role "local".
-- Errors: bad arguments, denied changes, changes of a table without a key; those of vedur.capture_state and
--     pgq.insert_event.
--
-- Runs with the rights of the user who changes the table, as its expressions must: that user needs
-- pgq_writer. vedur.create_capture makes triggers that are faster and need no rights.
declare
    _plan record;
    _state text;
    _ev record;
begin
    select * into _plan
    from vedur.capture_plan(tg_relid, tg_when, tg_level, tg_op, 'urlenc', tg_argv);
    if _plan.query is not null then
        if tg_when = 'AFTER' and tg_op = 'INSERT' then
            _state := vedur.capture_state(tg_relid, tg_op, 'urlenc', tg_argv, new, new, new.ctid, new.xmax, null);
        elsif tg_when = 'AFTER' and tg_op = 'UPDATE' then
            _state := vedur.capture_state(tg_relid, tg_op, 'urlenc', tg_argv, new, old, new.ctid, new.xmax, old.xmin);
        elsif tg_when = 'AFTER' and tg_op = 'DELETE' then
            _state := vedur.capture_state(tg_relid, tg_op, 'urlenc', tg_argv, old, old, null, null, old.xmin);
        end if;
        for _ev in
            execute 'select * from (' || coalesce(_state, _plan.query) || ') as e (t, d, e1, e2, e3, e4)' using new, old
        loop
            perform pgq.insert_event(
                _plan.queue_name, _ev.t, _ev.d, _ev.e1, _ev.e2, _ev.e3, _ev.e4);
        end loop;
    end if;
    if _plan.skip then
        return null;
    end if;
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end;
$$;
