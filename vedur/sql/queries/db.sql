-- Statements of the database layer (vedur/db/database.py).

-- name: has_set_role
-- Does the contract's function that sets the replication role exist here?
select pg_catalog.to_regprocedure('londiste.set_session_replication_role(text,boolean)') is not null

-- name: set_role
-- Whose triggers fire, by right of the role: where the function of the contract is not installed.
select pg_catalog.set_config('session_replication_role', %s, true)

-- name: identity
-- Who a session is, as settings.
select s.name, pg_catalog.current_setting(s.name) as setting
from unnest('{session_authorization,role}'::text[]) with ordinality as s (name, nr)
order by s.nr

-- name: settings
-- What statements may set in a session. What belongs to a transaction alone, and the replication role, are left out.
select s.name, s.setting
from pg_catalog.pg_settings s
where s.context in ('user', 'superuser')
  and s.name not in ('session_replication_role', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')

-- name: database_zone
-- The time zone with which sessions of this role begin here.
select s.reset_val from pg_catalog.pg_settings s where s.name = 'TimeZone'

-- name: set_back
-- Settings as they were, in this order.
select pg_catalog.set_config(s.name, s.setting, false)
from unnest(%s::text[], %s::text[]) as s (name, setting)
