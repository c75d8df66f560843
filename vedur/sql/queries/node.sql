-- Statements of the node layer (vedur/node).

-- name: has_schema
-- Is pgq_node installed here?
select pg_catalog.to_regclass('pgq_node.node_info') is not null

-- name: has_vedur
-- Did Vedur install anything here?
select exists (select from pg_catalog.pg_namespace where nspname = 'vedur')
