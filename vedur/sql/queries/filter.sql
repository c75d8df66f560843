-- Statements of change-filter (vedur/pipeline/repair/refilter.py). Words in braces are filled in by the code
-- with quoted identifiers, conditions and numbers, never with values of rows.

-- name: stage
-- Rows of the provider that come in, in the types of the target, each under the number of the
-- attempt that brought it.
create unlogged table {stage} with (autovacuum_enabled = off) as
select null::bigint as attempt, {columns} from {dest} as t where false

-- name: drop_stage
-- Staging goes, also what a dead command left.
drop table if exists {stage}

-- name: copy_out
-- One slice of the rows that come in.
copy (
    select {attempt}::bigint, {columns}
    from only {table} as t
    where {condition}
) to stdout

-- name: copy_in
-- Into the stage.
copy {stage} from stdin

-- name: analyze
-- So that the planner knows how much is staged.
analyze {stage}

-- name: leave
-- Rows that do not belong here any more.
delete from {only} {dest} as t where {condition}

-- name: replace
-- Rows that come in and are here already, although they did not belong here.
delete from {only} {dest} as t
using {stage} r
where r.attempt in ({attempts}) and {match}

-- name: enter
-- Rows that belong here now.
insert into {dest} ({columns}) overriding system value
select {values}
from {stage} r
where r.attempt in ({attempts})
