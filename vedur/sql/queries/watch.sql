-- Statements about tables that were changed by hand (vedur/catalog/watch.py).

-- name: installed
-- Does this database watch its tables, and may this role do it?
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.table_watch'), 'insert'), false)

-- name: watch
-- Look at the tables of a set; true if what changed was replicated.
select vedur.watch_tables(%s, %s)

-- name: mend_queue
-- Set sequences of a queue right that were altered by hand.
select vedur.mend_queue(%s)

-- name: lock
-- Wait for a look that is under way, and keep others away until the transaction ends.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('vedur.watch_tables'), pg_catalog.hashtext(%s))

-- name: readable
-- May this role ask for problems of tables?
select coalesce(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('vedur.table_problems(text)'), 'execute'), false)

-- name: changes_readable
-- May the role read what was found? Observers may call vedur.table_problems alone.
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.table_change'), 'select'), false)

-- name: dead_lack
-- Changes by hand that only nodes tagged as dead have not got: nobody is told of these while they are dead.
select c.table_name, c.what,
    (select pg_catalog.string_agg(n.name, ', ' order by n.name) from unnest(c.pending) as n (name)) as nodes
from vedur.table_change c
where c.queue_name = %s
    and c.severity = 'fail'
    and c.pending <> '{}'
    and not exists (
        select
        from pgq_node.node_location l
        where l.queue_name = c.queue_name
            and l.node_name = any (c.pending)
            and not l.dead)
order by 1, 2

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

-- name: hold_stage
-- While this session lives, nobody takes a staging table for one that a dead command has left (vedur/tables/stages.py).
select pg_catalog.pg_advisory_lock_shared(pg_catalog.hashtextextended('vedur.stage ' || %s, 0))

-- name: release_stage
-- Give it back.
select pg_catalog.pg_advisory_unlock_shared(pg_catalog.hashtextextended('vedur.stage ' || %s, 0))

-- name: stages_of_commands
-- Staging tables of commands that this role may drop, each with the name by which it is held: its own, or the beginning
-- that those of one replay have in common.
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as name,
    case when pg_catalog.starts_with(c.relname, %(prefix)s) then %(prefix)s else c.relname::text end as held
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'vedur_work' and c.relkind = 'r'
    and (
        c.relname ~ '^(filter_rows|repair_keys|repair_rows|expected)_[0-9a-f]{8}$'
        or pg_catalog.starts_with(c.relname, %(prefix)s))
    and pg_catalog.pg_has_role(c.relowner, 'usage')
order by c.relname

-- name: try_stage
-- Is a staging table left by a command that has died? Nobody uses it until the transaction ends.
select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended('vedur.stage ' || %s, 0))

-- name: patience
-- Tasks of the dead command may still write there: then it goes the next time.
set local lock_timeout = '200ms'

-- name: drop_stage
-- It goes.
drop table if exists {stage}
