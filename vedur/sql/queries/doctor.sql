-- Statements of the doctor (vedur/ops/doctor). They only read.

-- name: now
-- The server's clock.
select pg_catalog.clock_timestamp()

-- name: connections_left
-- Connections that ordinary roles can still open.
select (
    pg_catalog.current_setting('max_connections')::int
    - pg_catalog.current_setting('superuser_reserved_connections')::int
    - (select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend')
)::int

-- name: without_triggers
-- Roles and databases whose sessions here begin in role replica: no trigger of ours sees what they write.
select pg_catalog.concat_ws(' in ',
           'role ' || pg_catalog.quote_ident(r.rolname), 'database ' || pg_catalog.quote_ident(d.datname)) as whose
from pg_catalog.pg_db_role_setting s
    left join pg_catalog.pg_roles r on r.oid = s.setrole
    left join pg_catalog.pg_database d on d.oid = s.setdatabase
where (s.setdatabase = 0 or d.datname = pg_catalog.current_database())
    and exists (
        select from pg_catalog.unnest(s.setconfig) as c (line)
        where pg_catalog.lower(c.line) in ('session_replication_role=replica', 'session_replication_role="replica"'))
order by 1

-- name: open_path
-- Schemas of this session's path where everybody may create.
select n.nspname::text as name
from pg_catalog.pg_namespace n
where n.nspname = any (pg_catalog.current_schemas(false))
    and exists (
        select from pg_catalog.aclexplode(n.nspacl) a
        where a.grantee = 0 and a.privilege_type = 'CREATE')
order by 1

-- name: table_health
-- Of each named table: is it there, what may this role do with it, has it a key? Which key replication would choose
-- is catalog.table_keys; here a key of any kind counts, if its index is valid.
select w.schema || '.' || w.name as name,
    c.oid is not null as present,
    coalesce(pg_catalog.has_table_privilege(c.oid, 'select'), false) as may_select,
    coalesce(
        pg_catalog.has_table_privilege(c.oid, 'insert')
        and pg_catalog.has_table_privilege(c.oid, 'update')
        and pg_catalog.has_table_privilege(c.oid, 'delete')
        and pg_catalog.has_table_privilege(c.oid, 'truncate'), false) as may_write,
    coalesce(pg_catalog.pg_has_role(c.relowner, 'usage'), false) as may_alter,
    exists (
        select
        from pg_catalog.pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
            and (i.indisprimary or i.indimmediate and not exists (
                select
                from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
                join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                where k.nr <= i.indnkeyatts and not a.attnotnull))
    ) as has_key,
    exists (
        select from pg_catalog.pg_index i where i.indrelid = c.oid and not i.indisvalid
    ) as has_broken_index
from rows from (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) as w (schema, name)
left join pg_catalog.pg_namespace n on n.nspname = w.schema
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p')
order by w.schema, w.name

-- name: table_interference
-- Of each named table and its partitions: do policies hold for this role; which triggers and rules of users act on changes
-- that come by replication (role replica)? Those of ours are left out.
select w.schema || '.' || w.name as name,
    pg_catalog.bool_or(pg_catalog.row_security_active(p.oid)) as filtered,
    coalesce(pg_catalog.array_agg(distinct t.tgname::text order by t.tgname::text) filter (where t.oid is not null), '{}') as triggers,
    coalesce(pg_catalog.array_agg(distinct t.tgname::text) filter (where t.tgtype & 3 = 3), '{}') as before_row,
    coalesce(pg_catalog.array_agg(distinct r.rulename::text order by r.rulename::text) filter (where r.oid is not null), '{}') as rules
from rows from (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) as w (schema, name)
join pg_catalog.pg_namespace n on n.nspname = w.schema
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p')
cross join lateral (
    select c.oid
    union
    select f.relid from pg_catalog.pg_partition_tree(c.oid) f
) p
left join pg_catalog.pg_trigger t
    on t.tgrelid = p.oid and not t.tgisinternal and t.tgenabled in ('A', 'R')
    and not exists (
        select from pg_catalog.pg_proc f
        join pg_catalog.pg_namespace fn on fn.oid = f.pronamespace
        where f.oid = t.tgfoid and fn.nspname in ('pgq', 'londiste', 'vedur', 'vedur_work'))
left join pg_catalog.pg_rewrite r on r.ev_class = p.oid and r.ev_type <> '1' and r.ev_enabled in ('A', 'R')
group by w.schema, w.name
order by w.schema, w.name

-- name: table_indexes
-- The valid indexes of each named table: column names or expressions of their keys; a partial one has its
-- condition as the last.
select w.schema || '.' || w.name as name,
    i.indisprimary as is_primary,
    array(
        select coalesce(a.attname::text, pg_catalog.pg_get_indexdef(i.indexrelid, k.nr, true))
        from pg_catalog.generate_series(1, i.indnkeyatts::int) as k (nr)
        left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[k.nr - 1] and a.attnum > 0
        order by k.nr
    ) || case when i.indpred is null then array[]::text[]
        else array['where ' || pg_catalog.pg_get_expr(i.indpred, c.oid, true)] end as keys
from rows from (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) as w (schema, name)
join pg_catalog.pg_namespace n on n.nspname = w.schema
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p')
join pg_catalog.pg_index i on i.indrelid = c.oid and i.indisvalid
order by name, keys

-- name: table_triggers
-- Of each named table: operations that enabled triggers of the queue catch (I U D T), and triggers that are disabled.
select w.schema || '.' || w.name as name,
    coalesce(pg_catalog.bool_or(t.tgtype & 4 <> 0) filter (where t.tgenabled <> 'D'), false) as catches_insert,
    coalesce(pg_catalog.bool_or(t.tgtype & 8 <> 0) filter (where t.tgenabled <> 'D'), false) as catches_delete,
    coalesce(pg_catalog.bool_or(t.tgtype & 16 <> 0) filter (where t.tgenabled <> 'D'), false) as catches_update,
    coalesce(pg_catalog.bool_or(t.tgtype & 32 <> 0) filter (where t.tgenabled <> 'D'), false) as catches_truncate,
    coalesce(pg_catalog.array_agg(t.tgname::text) filter (where t.tgenabled = 'D'), '{}') as disabled
from rows from (pg_catalog.unnest(%(schemas)s::text[]), pg_catalog.unnest(%(names)s::text[])) as w (schema, name)
join pg_catalog.pg_namespace n on n.nspname = w.schema
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p')
left join pg_catalog.pg_trigger t
    on t.tgrelid = c.oid
    and not t.tgisinternal
    and t.tgname in (
        ('_londiste_' || %(queue)s)::name, ('zzz__londiste_' || %(queue)s)::name, ('_londiste_' || %(queue)s || '_truncate')::name,
        ('_londiste_' || %(queue)s || '_truncating')::name, ('_londiste_' || %(queue)s || '_truncated')::name)
group by w.schema, w.name
order by w.schema, w.name

-- name: may_work
-- Where Vedur puts staging tables and generated functions: may this role create there? Null without our schemas.
select pg_catalog.has_schema_privilege(n.oid, 'create')
from pg_catalog.pg_namespace n
where n.nspname = 'vedur_work'

-- name: may_consume
-- May this role read batches? Null without a queue.
select pg_catalog.has_function_privilege(f.oid, 'execute')
from (select pg_catalog.to_regprocedure('pgq.next_batch_custom(text,text,interval,integer,interval)') as oid) f
