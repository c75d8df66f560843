create or replace function vedur.where_to_write(i_queue_name text)
returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
-- ----------------------------------------------------------------------
-- Tell a writer who is refused here which node is the root, as far as this node knows. Of its location host, port and database are shown, never more.
--
-- Parameters: i_queue_name - cascaded queue.
-- Returns: a sentence; null where nothing is known.
-- Writes: nothing.
-- Raises: nothing.
-- ----------------------------------------------------------------------
declare
    _node record;
    _root text;
    _under_way boolean := false;
    _place text;
begin
    select n.node_type, n.node_name, n.node_attrs into _node from pgq_node.node_info n where n.queue_name = i_queue_name;
    if not found then
        return null;
    end if;
    select d.root_node into _root from vedur.deposed d where d.queue_name = i_queue_name;
    if _root is null and _node.node_type = 'root' then
        select l.node_name into _root
        from pgq_node.node_location l
        where l.queue_name = i_queue_name
            and strpos('&' || _node.node_attrs || '&', '&takeover_to=' || vedur.urlencode(l.node_name) || '&') > 0;
        _under_way := _root is not null;
    elsif _root is null then
        select r.root_node into _root from vedur.reign r where r.queue_name = i_queue_name order by r.serial desc limit 1;
    end if;
    if _root is null or _root = _node.node_name then
        return null;
    end if;
    select nullif(concat_ws(' ',
        substring(l.node_location from E'(?:^|\\s)(host\\s*=\\s*[^\\s'']+)'),
        substring(l.node_location from E'(?:^|\\s)(port\\s*=\\s*[0-9]+)'),
        substring(l.node_location from E'(?:^|\\s)(dbname\\s*=\\s*[^\\s'']+)')), '')
    into _place
    from pgq_node.node_location l
    where l.queue_name = i_queue_name and l.node_name = _root;
    return case when _under_way then format('Node "%s" is taking over', _root)
        else format('The root of queue "%s" is node "%s"', i_queue_name, _root) end
        || coalesce(format(': connect to %s.', _place), ': connect to it.');
end;
$$;
