-- name: columns_as_text
-- The columns of a table with their types, in order.
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type
from pg_attribute a
where a.attrelid = %(table)s::regclass and a.attnum > 0 and not a.attisdropped
order by a.attnum

-- name: rows_as_text
-- Rows of a table with each value as text.
select {columns} from {table} where {condition}

-- name: row_as_stored
-- What values are as text once columns of these types have them.
select {values}

-- name: tick_all
-- Ticks for all queues that are due for one.
select pgq.ticker()
