-- Statements of the catalog layer (vedur/catalog). Definitions are read with search_path set to
-- pg_catalog, so that every name in them comes out with its schema.

-- name: existing_relations
-- Which of the names (schema.name, unquoted) exist with one of the kinds.
select n.nspname || '.' || c.relname as name
from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = any (%s)
  and c.relkind::text = any (%s)

-- name: user_relations
-- Every relation of a user, by name; partitions count through their parent.
select n.nspname || '.' || c.relname as name
from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind::text = any (%s)
  and c.relpersistence = 'p'
  and not c.relispartition
  and n.nspname !~ '^pg_'
  and n.nspname not in ('information_schema', 'pgq', 'pgq_ext', 'pgq_node', 'pgq_coop', 'londiste', 'vedur',
                        'vedur_work')
order by 1

-- name: left_out_relations
-- Relations of a user that look like tables and cannot be replicated: unlogged tables, foreign tables.
select n.nspname || '.' || c.relname as name,
       c.relkind::text as kind,
       c.relpersistence::text as persistence
from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where (c.relkind = 'f' or c.relkind in ('r', 'p') and c.relpersistence = 'u')
  and not c.relispartition
  and n.nspname !~ '^pg_'
  and n.nspname not in ('information_schema', 'pgq', 'pgq_ext', 'pgq_node', 'pgq_coop', 'londiste', 'vedur',
                        'vedur_work')
order by 1

-- name: relation_facts
-- What the named relations are; no row for a name that nothing has.
select n.nspname || '.' || c.relname as name,
       c.relkind::text as kind,
       c.relpersistence::text as persistence,
       c.relispartition as is_partition,
       (select pn.nspname || '.' || p.relname
        from pg_catalog.pg_inherits i
             join pg_catalog.pg_class p on p.oid = i.inhparent
             join pg_catalog.pg_namespace pn on pn.oid = p.relnamespace
        where c.relispartition and i.inhrelid = c.oid) as parent
from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = any (%s)
  and c.relkind in ('r', 'p', 'f', 'v', 'm', 'S', 'i', 'I', 'c')

-- name: feeding
-- Tables of other sets, or of other names, that bring rows into a local table; the root's own are not brought, and a part that
-- waits behind a combined queue brings none. For such a part, what the combined queue brings are its own rows.
select t.queue_name,
       t.table_name,
       t.merge_state,
       t.table_attrs,
       t.dropped_ddl is not null as has_ddl,
       n.node_type
from londiste.table_info t
     join pgq_node.node_info n on n.queue_name = t.queue_name
     left join pgq_node.node_info c on c.queue_name = n.combined_queue
where t.local
  and n.node_type <> 'root'
  and c.node_type is distinct from 'branch'
  and coalesce(t.dest_table, t.table_name) = %(dest)s
  and (t.queue_name, t.table_name) <> (%(queue)s, %(table)s)
  and not exists (
      select 1 from pgq_node.node_info w where w.queue_name = %(queue)s and w.combined_queue = t.queue_name)
order by t.queue_name, t.table_name

-- name: set_search_path
-- Set the path of this session and return the one before; both inside one transaction.
select pg_catalog.current_setting('search_path') as before,
       pg_catalog.set_config('search_path', %s, true) as now

-- name: table_head
-- The table itself.
select c.oid,
       c.relkind::text as kind,
       c.relpersistence::text as persistence,
       pg_catalog.pg_get_userbyid(c.relowner) as owner,
       case when c.relkind = 'p' then pg_catalog.pg_get_partkeydef(c.oid) end as partition_key,
       c.reloptions as options
from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s
  and c.relname = %s
  and c.relkind in ('r', 'p', 'f')

-- name: table_columns
-- Columns in order; `sequence` is the sequence that a default takes its value from.
select a.attname as name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) as type,
       a.attnotnull as not_null,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid) as default_expr,
       a.attidentity::text as identity,
       a.attgenerated::text as generated,
       case when a.attcollation <> t.typcollation then
           (select pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(co.collname)
            from pg_catalog.pg_collation co
                 join pg_catalog.pg_namespace cn on cn.oid = co.collnamespace
            where co.oid = a.attcollation)
       end as collation,
       (select sn.nspname || '.' || s.relname
        from pg_catalog.pg_depend dep
             join pg_catalog.pg_class s on s.oid = dep.refobjid and s.relkind = 'S'
             join pg_catalog.pg_namespace sn on sn.oid = s.relnamespace
        where dep.classid = 'pg_catalog.pg_attrdef'::regclass
          and dep.objid = d.oid
          and dep.refclassid = 'pg_catalog.pg_class'::regclass
        limit 1) as sequence
from pg_catalog.pg_attribute a
     join pg_catalog.pg_type t on t.oid = a.atttypid
     left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = %s
  and a.attnum > 0
  and not a.attisdropped
order by a.attnum

-- name: columns
-- Columns of tables in order, to match those of others; `nr` counts the tables. `type` is the type as SQL writes it, of a domain its base
-- type, and `builtin` is about that; `type_oid` and `plain` are about the declared type. `plain` says that the type is
-- built in, has both binary functions (its elements too), does not name other objects by oid and is read back as it
-- was written (the server cannot read the binary form of an empty tsquery). `zoned` and `naming`: the type is, or is
-- made of, a type whose text depends on the session's time zone (timestamptz) or search path (regclass and its like).
with recursive typed as (
    select w.nr, a.attnum, a.attname, a.attgenerated, a.atttypid as declared, a.atttypid as typid,
        a.atttypmod as typmod
    from unnest(%s::text[], %s::text[]) with ordinality w (schema_name, table_name, nr)
    join pg_catalog.pg_namespace n on n.nspname = w.schema_name
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
    join pg_catalog.pg_attribute a on a.attrelid = c.oid
    where a.attnum > 0 and not a.attisdropped
    union all
    select b.nr, b.attnum, b.attname, b.attgenerated, b.declared, t.typbasetype, t.typtypmod
    from typed b
    join pg_catalog.pg_type t on t.oid = b.typid
    where t.typtype = 'd'
), parts as (
    select b.declared as root, b.declared as typid
    from typed b
    union
    select p.root, x.typid
    from parts p
    join pg_catalog.pg_type t on t.oid = p.typid
    cross join lateral (
        select t.typbasetype as typid
        union all
        select t.typelem
        union all
        select r.rngsubtype from pg_catalog.pg_range r where r.rngtypid = t.oid or r.rngmultitypid = t.oid
        union all
        select a.atttypid from pg_catalog.pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0
    ) x
    where x.typid <> 0
), made_of as (
    select p.root,
        pg_catalog.bool_or(p.typid = 'timestamptz'::pg_catalog.regtype) as zoned,
        pg_catalog.bool_or(t.oid < 10000 and t.typname ~ '^reg') as naming
    from parts p
    join pg_catalog.pg_type t on t.oid = p.typid
    group by p.root
)
select b.nr,
    b.attname::text as name,
    pg_catalog.format_type(b.typid, b.typmod) as type,
    b.attgenerated <> '' as generated,
    t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace as builtin,
    b.declared::bigint as type_oid,
    d.oid < 10000 and d.typtype in ('b', 'r', 'm')
        and d.typsend <> 0 and d.typreceive <> 0
        and (d.typelem = 0 or (e.typsend <> 0 and e.typreceive <> 0))
        and d.typname !~ '^_?(reg|tsquery$)'
        as plain,
    m.zoned,
    m.naming
from typed b
join made_of m on m.root = b.declared
join pg_catalog.pg_type t on t.oid = b.typid
join pg_catalog.pg_type d on d.oid = b.declared
left join pg_catalog.pg_type e on e.oid = d.typelem
where t.typtype <> 'd'
order by b.nr, b.attnum

-- name: table_constraints
-- Constraints except NOT NULL, which the columns tell (PostgreSQL 18 lists them here too).
select c.conname as name,
       c.contype::text as kind,
       pg_catalog.pg_get_constraintdef(c.oid) as definition,
       (select i.relname from pg_catalog.pg_class i where i.oid = c.conindid and c.contype in ('p', 'u', 'x')) as index_name
from pg_catalog.pg_constraint c
where c.conrelid = %s
  and c.contype in ('p', 'u', 'x', 'c', 'f')
  and c.conparentid = 0
order by pg_catalog.array_position(array['p', 'u', 'x', 'c', 'f'], c.contype::text), c.conname

-- name: unlogged_tables
-- Which of the named tables are unlogged, or have a partition that is: the first of these.
select w.name, pg_catalog.min(u.nspname || '.' || u.relname) as unlogged
from pg_catalog.unnest(%s::text[]) as w (name)
     join pg_catalog.pg_class c
          join pg_catalog.pg_namespace n on n.oid = c.relnamespace
          on n.nspname || '.' || c.relname = w.name and c.relkind in ('r', 'p')
     cross join lateral (
         select un.nspname, uc.relname
         from (select c.oid union select t.relid from pg_catalog.pg_partition_tree(c.oid) t) as part (oid)
              join pg_catalog.pg_class uc on uc.oid = part.oid and uc.relpersistence = 'u'
              join pg_catalog.pg_namespace un on un.oid = uc.relnamespace) as u
group by w.name

-- name: table_keys
-- Of the named tables that exist: the columns of the key by which changes find their rows, in its order, and the
-- index that has them (no columns where there is none). The primary key; without one the index of the replica
-- identity, else the smallest unique index, if it is valid, total, immediate and over NOT NULL columns.
-- londiste.table_key chooses by the same text, which tests/house/test_sql_files.py holds; a provider may not have it.
select n.nspname || '.' || c.relname as name,
       i.index_name,
       coalesce(i.is_primary, false) as is_primary,
       coalesce(i.key, '{}') as key
from rows from (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) as w (schema, name)
     join pg_catalog.pg_namespace n on n.nspname = w.schema
     join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name and c.relkind in ('r', 'p')
     left join lateral (
         select i.indisprimary as is_primary,
                x.relname::text as index_name,
                array(select a.attname::text
                      from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
                           join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                      where k.nr <= i.indnkeyatts
                      order by k.nr) as key
         from pg_catalog.pg_index i
              join pg_catalog.pg_class x on x.oid = i.indexrelid
         where i.indrelid = c.oid
           and i.indisunique
           and (i.indisprimary
                or i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
                   and not exists (
                       select 1
                       from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
                            join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                       where k.nr <= i.indnkeyatts
                         and (k.attnum < 1 or not a.attnotnull or a.attgenerated <> '' or a.attname ~ E'^\\s|,|\\s$')))
         order by i.indisprimary desc, i.indisreplident desc, i.indnkeyatts, x.relname
         limit 1
     ) i on true

-- name: takes_unique_keys
-- Does add-table of this database accept a unique index where there is no primary key? Upstream's does not.
select pg_catalog.to_regprocedure('londiste.table_key(text)') is not null

-- name: unique_keys
-- Column sets that name at most one row: the primary key first, then the shortest.
select (
        select pg_catalog.array_agg(a.attname::text order by k.nr)
        from pg_catalog.unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        where k.nr <= i.indnkeyatts
    ) as columns,
    i.indisprimary as primary
from pg_catalog.pg_index i
where i.indrelid = pg_catalog.to_regclass(%s)
    and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
    and not exists (
        select 1
        from pg_catalog.pg_attribute a
        where a.attrelid = i.indrelid and a.attnum = any (i.indkey::int2[]) and not a.attnotnull)
order by i.indisprimary desc, i.indnkeyatts, i.indexrelid

-- name: unique_columns
-- The column sets of valid and total unique indexes of tables; `nr` counts the tables.
select w.nr,
       array(select a.attname::text
             from pg_catalog.unnest(i.indkey::int2[]) with ordinality k(attnum, nr)
                  join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
             where k.nr <= i.indnkeyatts) as columns
from unnest(%s::text[], %s::text[]) with ordinality w (schema_name, table_name, nr)
     join pg_catalog.pg_namespace n on n.nspname = w.schema_name
     join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
     join pg_catalog.pg_index i on i.indrelid = c.oid
where i.indisunique
  and i.indisvalid
  and i.indpred is null
  and i.indexprs is null

-- name: no_unique_key
-- A partitioned table that cannot have a unique index over some columns (given in order of their names), because it
-- is partitioned by others: how it is partitioned, and whether an index begins with these columns. No row otherwise.
select pg_catalog.pg_get_partkeydef(c.oid) as partition_key,
       exists (select
               from pg_catalog.pg_index i
               where i.indrelid = c.oid
                 and i.indisvalid
                 and i.indpred is null
                 and i.indnkeyatts >= pg_catalog.cardinality(k.names)
                 and array(select a.attname::text
                           from pg_catalog.unnest(i.indkey::int2[]) with ordinality x(attnum, nr)
                                join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = x.attnum
                           where x.nr <= pg_catalog.cardinality(k.names)
                           order by 1) = k.names) as served
from (select %s::text[] as names) k,
     pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     join pg_catalog.pg_partitioned_table p on p.partrelid = c.oid
where n.nspname = %s
  and c.relname = %s
  and exists (select
              from pg_catalog.unnest(p.partattrs::int2[]) x(attnum)
                   left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = x.attnum and x.attnum > 0
              where not coalesce(a.attname::text = any (k.names), false))

-- name: table_indexes
-- Indexes that no constraint owns.
select i.relname as name,
       x.indisunique as is_unique,
       pg_catalog.pg_get_indexdef(i.oid) as definition
from pg_catalog.pg_index x
     join pg_catalog.pg_class i on i.oid = x.indexrelid
where x.indrelid = %s
  and not exists (select 1 from pg_catalog.pg_constraint c
                  where c.conindid = i.oid and c.contype in ('p', 'u', 'x'))
order by i.relname

-- name: table_triggers
-- Triggers of users; those of replication are made by add-table on each node.
select t.tgname as name,
       pg_catalog.pg_get_triggerdef(t.oid) as definition,
       t.tgenabled::text as enabled
from pg_catalog.pg_trigger t
where t.tgrelid = %s
  and not t.tgisinternal
  and t.tgname !~ '^(zzz_)?_londiste'
order by t.tgname

-- name: table_rules
-- Rules of users.
select r.rulename as name,
       pg_catalog.pg_get_ruledef(r.oid) as definition
from pg_catalog.pg_rewrite r
where r.ev_class = %s
  and r.rulename <> '_RETURN'
order by r.rulename

-- name: table_grants
-- Rights that somebody other than the owner was given.
select case when a.grantee = 0 then null else pg_catalog.pg_get_userbyid(a.grantee) end as grantee,
       a.privilege_type as privilege,
       a.is_grantable as grantable
from pg_catalog.pg_class c
     cross join lateral pg_catalog.aclexplode(c.relacl) a
where c.oid = %s
  and a.grantee <> c.relowner
order by 1, 2

-- name: sequence_structure
-- How a sequence counts.
select pg_catalog.format_type(s.seqtypid, null) as type, s.seqstart, s.seqincrement,
       s.seqmin, s.seqmax, s.seqcache, s.seqcycle
from pg_catalog.pg_sequence s
     join pg_catalog.pg_class c on c.oid = s.seqrelid
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s
  and c.relname = %s

-- name: existing_roles
-- Which of the roles exist here.
select rolname as name from pg_catalog.pg_roles where rolname = any (%s)

-- name: foreign_keys
-- Foreign keys from and to a table, with the statement that makes each.
select fn.nspname || '.' || f.relname as from_table,
       tn.nspname || '.' || t.relname as to_table,
       c.conname as fkey_name,
       pg_catalog.format('alter table only %%I.%%I add constraint %%I %%s;',
                         fn.nspname, f.relname, c.conname, pg_catalog.pg_get_constraintdef(c.oid)) as fkey_def
from pg_catalog.pg_constraint c
     join pg_catalog.pg_class f on f.oid = c.conrelid
     join pg_catalog.pg_namespace fn on fn.oid = f.relnamespace
     join pg_catalog.pg_class t on t.oid = c.confrelid
     join pg_catalog.pg_namespace tn on tn.oid = t.relnamespace
where c.contype = 'f'
  and c.conparentid = 0
  and (fn.nspname || '.' || f.relname = any (%s)
       or tn.nspname || '.' || t.relname = any (%s))
order by 1, 3

-- name: add_pending_fkey
-- Let the worker make a foreign key as soon as both of its tables are in sync here.
insert into londiste.pending_fkeys (from_table, to_table, fkey_name, fkey_def)
values (%s, %s, %s, %s)
on conflict do nothing

-- name: has_refresh_stale_captures
-- Does this database have generated capture?
select pg_catalog.to_regprocedure('vedur.refresh_stale_captures()') is not null

-- name: tables_of_script
-- Tables of a set that a script must hold others off: those that it names (in any schema, where it gives none), their
-- partitions where it names these, the tables below one that it names (each is added to the set by itself), and what views
-- and rules that it names read.
with recursive reached (oid) as (
    select c.oid
    from unnest(%s::text[], %s::text[]) as w (schema_name, relation_name)
    join pg_catalog.pg_class c on c.relname = w.relation_name
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where w.schema_name in ('', n.nspname) and c.relkind in ('r', 'p', 'v', 'm')
    union
    select d.refobjid
    from reached r
    join pg_catalog.pg_rewrite w on w.ev_class = r.oid
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = w.oid
    where d.refclassid = 'pg_catalog.pg_class'::regclass
), below (oid) as (
    select r.oid
    from reached r
    union
    select i.inhrelid
    from below b
    join pg_catalog.pg_inherits i on i.inhparent = b.oid
), member (oid) as (
    select pg_catalog.to_regclass(dest)::oid from unnest(%s::text[]) as dest
)
select pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) as name
from below r
join pg_catalog.pg_class c on c.oid = r.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p')
  and (c.oid in (select m.oid from member m)
    or r.oid in (select reached.oid from reached)
        and exists (select from pg_catalog.pg_partition_ancestors(c.oid) as a (relid), member m where m.oid = a.relid))
order by n.nspname, c.relname

-- name: hold_off_writers
-- Nobody else writes to these tables, or is still writing, until the transaction ends; reading goes on.
lock table {tables} in share row exclusive mode

-- name: applied_script
select e.execute_sql
from londiste.applied_execute e
where e.execute_file = %s

-- name: note_script
-- Has another set brought this script here as often as this one?
select vedur.note_script(%s, %s, %s)

-- name: has_objects
-- Which of the named objects are here: relations of a kind, by the contract's name.
select n.nspname || '.' || c.relname as name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = any (%s) and c.relkind = any (%s::"char"[])

-- name: has_schemas
-- Which of the named schemas are here.
select nspname::text as name from pg_catalog.pg_namespace where nspname = any (%s)

-- name: has_function
-- Is there a function of this name with that many arguments?
select exists (
    select 1
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname || '.' || p.proname = %s and p.pronargs = %s
)

-- name: try_condition
-- Does the server understand a condition on rows of a table? Reads none of them.
select 1
from {table} as t
where ({condition}
    )
limit 0

-- name: lacking
-- Which of these relations, or schemas where there is no name, are not here?
select w.schema, w.name, pg_catalog.to_regnamespace(w.quoted_schema) is null as no_schema
from unnest(%s::text[], %s::text[], %s::text[], %s::text[])
    with ordinality as w (quoted_schema, quoted_name, schema, name, nr)
where pg_catalog.to_regnamespace(w.quoted_schema) is null
    or w.quoted_name is not null
    and pg_catalog.to_regclass(w.quoted_schema || '.' || w.quoted_name) is null
order by w.nr

-- name: ignored_columns
-- Columns that capture of a table leaves out: the ignore= of its triggers' arguments.
select btrim(c) as name
from pg_catalog.pg_trigger g
join pg_catalog.pg_proc p on p.oid = g.tgfoid
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
cross join lateral unnest(string_to_array(encode(g.tgargs, 'escape'), '\000')) as a (arg)
cross join lateral unnest(string_to_array(substr(a.arg, length('ignore=') + 1), ',')) as c
where g.tgrelid = pg_catalog.to_regclass(%s) and not g.tgisinternal
    and n.nspname in ('pgq', 'vedur', 'vedur_work') and starts_with(a.arg, 'ignore=')

-- name: volatile_functions
-- Which of the names can only mean a volatile function?
select p.proname::text as name
from pg_catalog.pg_proc p
where p.proname = any (%s)
group by p.proname
having pg_catalog.bool_and(p.provolatile = 'v')
order by 1

-- name: condition_table
-- An empty table like another, to try an index on.
create temporary table vedur_condition (like {table}) on commit drop

-- name: condition_index
-- Refused (42P17) where the condition depends on more than the row.
create index on pg_temp.vedur_condition ((1)) where ({condition}
    )

-- name: sharing
-- Tables of sets, in any queue, whose rows come together in a local table (quoted), or in it and its partitions.
-- By catalogs and not by casts: a schema may be closed to this role. A root's tables are where its rows come from:
-- nothing feeds them. A part that waits behind a combined queue brings no rows.
with here as (
    select c.oid
    from (select pg_catalog.parse_ident(%(dest)s) as part) w
    join pg_catalog.pg_namespace n on n.nspname = w.part[1]::name
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.part[2]::name
), tree as (
    select h.oid from here h
    union
    select p.relid from here h, pg_catalog.pg_partition_tree(h.oid) p
    union
    select p.relid from here h, pg_catalog.pg_partition_ancestors(h.oid) p
)
select i.queue_name, i.table_name, coalesce(i.dest_table, i.table_name) as dest
from tree t
join pg_catalog.pg_class c on c.oid = t.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join londiste.table_info i
    on coalesce(i.dest_table, i.table_name) = n.nspname || '.' || c.relname
join pgq_node.node_info o on o.queue_name = i.queue_name and o.node_type <> 'root'
left join pgq_node.node_info b on b.queue_name = o.combined_queue
where i.local
  and b.node_type is distinct from 'branch'
order by i.table_name

-- name: partitions
-- The partitions of a table, each after its parent; own constraints and indexes are those that do not come with the parent's.
with recursive parts as (
    select c.oid, c.relkind, null::oid as parent, 0 as level
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s and c.relkind = 'p'
    union all
    select c.oid, c.relkind, p.oid, p.level + 1
    from parts p
    join pg_catalog.pg_inherits i on i.inhparent = p.oid and not i.inhdetachpending
    join pg_catalog.pg_class c on c.oid = i.inhrelid
    where p.relkind = 'p'
)
select n.nspname as schema, c.relname as name, pn.nspname as parent_schema, pc.relname as parent_name, p.level,
    pg_catalog.pg_get_expr(c.relpartbound, c.oid) as bound,
    case when c.relkind = 'p' then pg_catalog.pg_get_partkeydef(c.oid) end as partition_key,
    c.reloptions as options,
    array(
        select pg_catalog.format('alter table %%I.%%I add constraint %%I %%s', n.nspname, c.relname, k.conname,
            pg_catalog.pg_get_constraintdef(k.oid))
        from pg_catalog.pg_constraint k
        where k.conrelid = c.oid and k.conparentid = 0 and k.conislocal and k.contype in ('p', 'u', 'x', 'c')
            and not (k.contype = 'c' and k.coninhcount > 0)
        order by pg_catalog.array_position(array['p', 'u', 'x', 'c'], k.contype::text), k.conname
    ) || array(
        select pg_catalog.pg_get_indexdef(x.indexrelid)
        from pg_catalog.pg_index x
        where x.indrelid = c.oid
            and not exists (select from pg_catalog.pg_inherits i where i.inhrelid = x.indexrelid)
            and not exists (select from pg_catalog.pg_constraint k where k.conindid = x.indexrelid and k.contype in ('p', 'u', 'x'))
        order by x.indexrelid
    ) as own
from parts p
join pg_catalog.pg_class c on c.oid = p.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_class pc on pc.oid = p.parent
join pg_catalog.pg_namespace pn on pn.oid = pc.relnamespace
order by p.level, pg_catalog.pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT', n.nspname, c.relname

-- name: is_root
-- Is this node the root of a set?
select exists (
    select 1 from pgq_node.node_info n where n.queue_name = %s and n.node_type = 'root'
)

-- name: functions_of
-- Is there a function with this name that takes so many arguments, and may this role call it?
select exists (
    select 1
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = {schema} and p.proname = {name} and p.prokind = 'f'
        and (p.provariadic <> 0 or {count} between p.pronargs - p.pronargdefaults and p.pronargs)
        and pg_catalog.has_schema_privilege(n.oid, 'usage')
        and pg_catalog.has_function_privilege(p.oid, 'execute')
)

-- name: parts
-- The tables of sets that bring rows to one local table, in the order in which one of them leads; a part that waits behind a
-- combined queue brings none.
select i.queue_name,
       i.table_name,
       i.merge_state,
       i.table_attrs,
       i.dropped_ddl is not null as has_ddl,
       n.node_type,
       n.combined_queue,
       s.provider_node
from londiste.table_info i
join pgq_node.node_info n on n.queue_name = i.queue_name and n.node_type <> 'root'
left join pgq_node.node_info c on c.queue_name = n.combined_queue
left join pgq_node.local_state s on s.queue_name = n.queue_name and s.consumer_name = n.worker_name
where i.local
  and c.node_type is distinct from 'branch'
  and coalesce(i.dest_table, i.table_name) = %s
order by i.queue_name collate "C", i.table_name

-- name: shared_tables
-- Those tables of a set to whose local table another table of a set brings rows, too; `merges`: one of another queue
-- that takes part in the same merge.
select i.table_name,
       bool_or(o.queue_name <> i.queue_name and n.node_type = 'leaf' and m.node_type = 'leaf'
           and m.combined_queue is not distinct from n.combined_queue) as merges
from londiste.table_info i
join pgq_node.node_info n on n.queue_name = i.queue_name and n.node_type <> 'root'
join londiste.table_info o on o.local
    and coalesce(o.dest_table, o.table_name) = coalesce(i.dest_table, i.table_name)
    and (o.queue_name, o.table_name) <> (i.queue_name, i.table_name)
join pgq_node.node_info m on m.queue_name = o.queue_name and m.node_type <> 'root'
where i.queue_name = %s
  and i.local
group by i.table_name

-- name: in_two_parts
-- Does a row of the table fulfil the conditions of two parts?
select exists (select from {dest} as t where ({sum}) > 1)

-- name: part_value
-- What a column of a type would hold of a value.
select cast({value}::{type} as text) as {column}

-- name: part_has_row
-- Is there a row with a key that fulfils the condition of a part?
select exists (select from {dest} as t where {match} and ({condition}
    ))
