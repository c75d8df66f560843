create or replace function pgq._insert_event(
    queue_name text, ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Inserts an event for a producer who has no right on the event tables; behind pgq.insert_event.
--
-- In the queue of a set of nodes some types are orders, which the worker of every other node carries out with its own
-- rights: EXECUTE is SQL to be run, pgq.* and londiste.* change nodes and tables. Producers must not give them.
-- Nobody is exempt, whoever the session belongs to: a superuser's session also runs functions of others, as in REINDEX.
--
-- Parameters: as pgq.insert_event
-- Returns: ev_id
-- Writes: current event table of the queue
-- Raises: insufficient_privilege for such a type; as pgq.insert_event_raw
-- ----------------------------------------------------------------------
begin
    if ev_type ~* E'^\\s*(execute\\s*$|pgq\\.|londiste\\.)'
        and to_regclass('pgq_node.node_info') is not null
        and exists (select 1 from pgq_node.node_info n where n.queue_name = _insert_event.queue_name)
    then
        raise exception 'events of type "%" are orders to the nodes of queue "%": pgq_writer may not write them',
            ev_type, queue_name
            using errcode = 'insufficient_privilege',
                hint = 'Use the functions of schemas pgq_node and londiste, or a role that is a member of pgq_admin.';
    end if;
    return pgq.insert_event_raw(
        queue_name, null, null, null, null, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4);
end;
$$;
