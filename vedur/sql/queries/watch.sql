-- Statements about tables that were changed by hand (vedur/catalog/watch.py).

-- name: installed
-- Does this database watch its tables, and may this role do it?
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.table_watch'), 'insert'), false)

-- name: watch
-- Look at the tables of a set; true if what changed was replicated.
select vedur.watch_tables(%s, %s)

-- name: lock
-- Wait for a look that is under way, and keep others away until the transaction ends.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('vedur.watch_tables'), pg_catalog.hashtext(%s))

-- name: readable
-- May this role ask for problems of tables?
select coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('vedur.table_problems(text)'), 'execute'), false)

-- name: problems
-- What is wrong with the tables of a node and cannot be seen from its queue.
select p.table_name, p.severity, p.what, p.action
from vedur.table_problems(%s) as p
order by p.severity, p.table_name, p.what

-- name: last_change
-- The newest change that is known of a table; null for none.
select max(c.change_id) from vedur.table_change as c where c.queue_name = %s and c.table_name = %s

-- name: mend
-- A node has repaired the table: these changes are repaired there.
select vedur.mend_table_changes(%s, %s, %s, %s, %s)
