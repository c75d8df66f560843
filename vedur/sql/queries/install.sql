-- Statements of the installer (vedur/db/install.py).

-- name: has_plpgsql
-- Is the language there?
select exists (select 1 from pg_catalog.pg_language where lanname = 'plpgsql')

-- name: lock
-- Two installers at once: the second waits, then finds everything current.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('vedur.install', 0))

-- name: patience
-- Triggers and indexes lock their tables against writers. Less than deadlock_timeout: where the
-- installer and a worker wait for each other, it is the installer that gives way.
set local lock_timeout = '300ms'

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
