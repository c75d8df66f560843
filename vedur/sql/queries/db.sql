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
-- What was set in this session: the server's configuration may change meanwhile, too. What belongs to a transaction alone, and
-- the replication role, are left out.
select s.name, s.setting
from pg_catalog.pg_settings s
where s.context in ('user', 'superuser')
  and s.source = 'session'
  and s.name not in ('session_replication_role', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')

-- name: database_zone
-- The time zone with which sessions of this role begin here.
select s.reset_val from pg_catalog.pg_settings s where s.name = 'TimeZone'

-- name: set_back
-- Settings as they were, in this order; one that was not set is what sessions begin with. Without nulls in arrays, which the
-- statements before may have made the server read as text.
select pg_catalog.set_config(s.name, case when s.was_set then s.setting else p.reset_val end, false)
from unnest(%s::text[], %s::text[], %s::boolean[]) with ordinality as s (name, setting, was_set, nr)
    left join pg_catalog.pg_settings p on p.name = s.name
order by s.nr
