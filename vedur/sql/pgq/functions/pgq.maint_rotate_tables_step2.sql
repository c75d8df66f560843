create or replace function pgq.maint_rotate_tables_step2()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Completes rotations, in a transaction of its own after step 1: notes a transaction that began when the switch was visible.
--
-- Parameters: none
-- Returns: 0
-- Writes: pgq.queue
-- Raises: nothing
-- ----------------------------------------------------------------------
begin
    update pgq.queue
    set queue_switch_step2 = txid_current()
    where queue_switch_step2 is null;
    return 0;
end;
$$;
