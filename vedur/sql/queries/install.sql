-- Statements of the installer (vedur/db/install.py).

-- name: has_plpgsql
-- Is the language there?
select exists (select 1 from pg_catalog.pg_language where lanname = 'plpgsql')

-- name: lock
-- Two installers at once: the second waits, then finds everything current.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('vedur.install', 0))

-- name: patience
-- Nothing that still waits for a lock does so for long.
set local lock_timeout = '300ms'

-- name: tables_to_lock
-- Tables that the installer will lock against their users, for its first lock: all of a schema that has upgrade
-- steps, and those that lack an index or trigger which is about to be made. Event tables are no
-- business of upgrade steps, and their writers never pause.
select pg_catalog.format('%%I.%%I', n.nspname, c.relname) as name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r'
  and (n.nspname = any (%(stepping)s)
           and not (n.nspname = 'pgq' and c.relname ~ '^event_')
       or exists (
           select 1
           from (values ('vedur', 'repair_log', 'repair_log_table_idx'),
                        ('vedur', 'skip_request', 'skip_request_open_idx'),
                        ('vedur', 'quarantine', 'quarantine_table_idx'),
                        ('vedur', 'quarantine', 'quarantine_whole_idx')) x (schema, rel, idx)
           where x.schema = any (%(running)s)
             and n.nspname = x.schema
             and c.relname = x.rel
             and not exists (
                 select 1
                 from pg_catalog.pg_class i
                 where i.relnamespace = n.oid and i.relname = x.idx))
       or 'londiste' = any (%(running)s)
           and n.nspname = 'londiste'
           and c.relname = 'table_info'
           and not exists (
               select 1
               from pg_catalog.pg_trigger t
               where t.tgrelid = c.oid and t.tgname = 'table_info_trigger_sync'))
order by 1

-- name: lock_tables
-- All together and without waiting, or not at all: a session that waits while it holds something can be the reason why
-- somebody else's transaction is ended as a deadlock. (`only`: names are listed one by one.)
lock table {tables} in access exclusive mode nowait

-- name: present_schemas
-- Which of the schemas hold anything at all. An empty one left behind counts as missing,
-- except that tables.sql must then cope with it; so only schemas with functions or tables count.
select n.nspname as schema
from pg_catalog.pg_namespace n
where n.nspname = any (%s)
  and (exists (select 1 from pg_catalog.pg_proc p where p.pronamespace = n.oid)
       or exists (select 1 from pg_catalog.pg_class c
                  where c.relnamespace = n.oid
                    and not (n.nspname = 'vedur' and c.relname in ('component', 'component_pkey'))))

-- name: has_component_table
-- Did we install anything here before?
select pg_catalog.to_regclass('vedur.component') is not null

-- name: components
-- What we installed, with version and digest.
select schema, version, digest from vedur.component

-- name: bootstrap
-- The record of what we installed; it must exist before the first schema is written.
create schema if not exists vedur;
create table if not exists vedur.component (
    schema          text not null constraint component_pkey primary key,
    version         text not null,
    digest          text not null,
    installed_at    timestamptz not null default now()
)

-- name: record
-- Remember what was just installed.
insert into vedur.component (schema, version, digest)
values (%s, %s, %s)
on conflict (schema) do update
set version = excluded.version, digest = excluded.digest, installed_at = now()
