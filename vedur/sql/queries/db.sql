-- Statements of the database layer (vedur/db/database.py).

-- name: has_set_role
-- Does the contract's function that sets the replication role exist here?
select pg_catalog.to_regprocedure('londiste.set_session_replication_role(text,boolean)') is not null

-- name: set_role
-- Whose triggers fire, by right of the role: where the function of the contract is not installed.
select pg_catalog.set_config('session_replication_role', %s, true)
