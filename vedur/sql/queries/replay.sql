-- Statements of replay on the target and of reading events on the provider (vedur/pipeline).
-- Words in braces are filled in by the code with quoted identifiers and numbers, never with values.

-- name: read_events
-- One slice of a tick range in the order of its events. Of 100,000 events this takes the provider 0.13 s
-- of CPU, since they lie nearly in that order; table by table 0.20 s, in no order 0.10 s. The old
-- row that a backup trigger keeps in ev_extra2 is left behind: only events for the worker itself use
-- the extra fields. Empty text instead of null, because a reader can take a row without a backslash
-- as it is.
copy (
    select ev_id, ev_txid, coalesce(ev_retry::text, ''),
        case when {system} then json_build_array(ev_extra2, ev_extra3, ev_extra4)::text{timed} else '' end,
        ev_type, ev_extra1, ev_data
    from {events}
    where {slice}
        and (ev_owner is null or ev_owner = {owner})
    order by ev_id
) to stdout

-- name: event_times
-- Of events of some tables, when they were written, as a clock on the wall shows it there: our sessions have another time zone.
 when ev_extra1 in ({tables}) then json_build_array(to_char(
        ev_time at time zone (select s.reset_val from pg_catalog.pg_settings s where s.name = 'TimeZone'),
        'YYYY-MM-DD HH24:MI:SS'))::text

-- name: whole_events
-- Of events of some tables, all that a function of theirs is given.
 when ev_extra1 in ({tables}) then json_build_array({time}, ev_extra2, ev_extra3, ev_extra4, {tick})::text

-- name: is_system
-- Events that are not about rows of a table.
ev_type = 'EXECUTE' or ev_type like 'pgq.%' or ev_type like 'londiste.%'

-- name: dest_names
-- What the tables of a set are called on this node.
select t.table_name, coalesce(t.dest_table, t.table_name) as dest_table
from londiste.table_info t
where t.queue_name = %s and t.local

-- name: table_columns
-- The columns of target tables, domains taken down to their base types.
with recursive wanted as (
    select t.name, t.relation, to_regclass(t.relation) as oid
    from unnest(%(names)s::text[], %(relations)s::text[]) as t (name, relation)
), typed as (
    select w.name, a.attrelid, a.attnum, a.attname, a.attgenerated, a.attidentity, a.attcollation,
        a.atttypid as typid, a.atttypmod as typmod
    from wanted w
    join pg_attribute a on a.attrelid = w.oid
    where a.attnum > 0 and not a.attisdropped
    union all
    select b.name, b.attrelid, b.attnum, b.attname, b.attgenerated, b.attidentity, b.attcollation,
        t.typbasetype, t.typtypmod
    from typed b
    join pg_type t on t.oid = b.typid
    where t.typtype = 'd'
)
select b.name, b.attname::text as column_name,
    format_type(b.typid, b.typmod) as type_name,
    case
        when b.typid in ('json'::regtype, 'jsonb'::regtype) then 'json'
        when t.typcategory = 'A' and t.typelem in ('json'::regtype, 'jsonb'::regtype)
            then 'array:json'
        when t.typcategory = 'A' then 'array'
        when t.typtype = 'c' then 'record'
        else ''
    end as type_kind,
    b.attgenerated <> '' as generated,
    b.attidentity = 'a' as identity_always,
    b.typid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype,
            'uuid'::regtype, 'bool'::regtype, 'text'::regtype, 'varchar'::regtype)
        and coalesce(l.collisdeterministic, true) as canonical
from typed b
join pg_type t on t.oid = b.typid
left join pg_collation l on l.oid = b.attcollation
where t.typtype <> 'd'
order by b.name, b.attnum

-- name: table_facts
-- What else replay must know of each target table; oid is null where there is no such table.
select w.name, c.oid::bigint as oid, c.relkind = 'p' as partitioned,
    coalesce((
        select json_agg((
            select json_agg(a.attname order by k.nr)
            from unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
            join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
            where k.nr <= i.indnkeyatts))
        from pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indisvalid
            and i.indpred is null and i.indexprs is null
    ), '[]') as unique_keys,
    coalesce((
        select json_agg((
            select json_agg(a.attname order by k.nr)
            from unnest(i.indkey::int2[]) with ordinality as k (attnum, nr)
            join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
            where k.nr <= i.indnkeyatts))
        from pg_index i
        where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate
            and i.indpred is null and i.indexprs is null
    ), '[]') as enforced_keys
from unnest(%(names)s::text[], %(relations)s::text[]) as w (name, relation)
left join pg_class c on c.oid = to_regclass(w.relation)

-- name: shapes
-- A fingerprint of what replay knows of each table: the names, types, collations and places of its
-- columns, which of them are generated or identities, and its unique keys; null for no table.
select w.name, (
        select pg_catalog.hashtextextended(
            string_agg(
                concat_ws(' ', a.attnum, a.atttypid, a.atttypmod, a.attcollation,
                    a.attgenerated, a.attidentity, a.attname), ',' order by a.attnum)
            || coalesce((
                select string_agg(k.is_key, ',' order by k.is_key)
                from (
                    select concat_ws(' ', ';', i.indnkeyatts, i.indisvalid, i.indimmediate, i.indkey) as is_key
                    from pg_index i
                    where i.indrelid = to_regclass(w.relation) and i.indisunique
                        and i.indpred is null and i.indexprs is null
                ) k), ''), 0)
        from pg_attribute a
        where a.attrelid = to_regclass(w.relation) and a.attnum > 0 and not a.attisdropped
    ) as shape
from unnest(%(names)s::text[], %(relations)s::text[]) as w (name, relation)

-- name: no_row
-- Keeps a table from being altered until the end of the transaction.
select 1 from {dest} where false

-- name: logged
-- How many events of some slices are in the log.
select count(*) from {log} where slice in ({slices})

-- name: stage_definitions
-- How staging tables were made, of those that are our own: another's may have triggers.
select w.name, obj_description(c.oid, 'pg_class') as definition
from unnest(%s::text[]) as w (name)
join pg_class c on c.oid = to_regclass(w.name)
join pg_roles r on r.oid = c.relowner
where r.rolname = current_user

-- name: stage_create
-- A staging table: its columns are positions, so no name of a user's column can clash.
drop table if exists {stage};
create unlogged table {stage} (
    slice bigint not null,
    ev_first bigint not null,
    ev_last bigint not null,
    kind "char" not null,
    shape bigint not null{columns}
) with (autovacuum_enabled = off);
comment on table {stage} is {definition}

-- name: log_create
-- Events staged as they are, for tables that replay row by row.
drop table if exists {log};
create unlogged table {log} (
    slice bigint not null,
    ev_id bigint not null,
    ev_txid bigint not null,
    ev_type text not null,
    ev_data text,
    ev_extra1 text,
    rest text
) with (autovacuum_enabled = off);
comment on table {log} is '{definition}'

-- name: stage_tables
-- Staging tables of one queue that are there; earlier versions had them in vedur.
select quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('vedur_work', 'vedur') and c.relkind = 'r' and starts_with(c.relname, %s)

-- name: stage_drop
-- One staging table goes.
drop table if exists {stage}

-- name: stage_truncate
-- Used slices and debris of dead attempts go.
truncate {stages}

-- name: stage_copy
-- Net changes into a staging table.
copy {stage} from stdin

-- name: stage_copy_csv
-- The same from payloads whose names were cut out.
copy {stage} (slice, ev_first, ev_last, kind, shape{columns}) from stdin (format csv, null 'null')

-- name: log_copy
-- Events into the log of a slot.
copy {log} (slice, ev_id, ev_txid, ev_type, ev_data, ev_extra1, rest) from stdin

-- name: log_read
-- The events of chosen slices in order.
select ev_id, ev_txid, ev_type, ev_data, ev_extra1, rest
from {log}
where slice in ({slices}) and ev_id > {after} and ev_id < {before}
order by ev_id

-- name: merge_delete
-- Rows that are gone, and rows that come back as others.
delete from {only} {dest} d
using {stage} s
where {chosen} and s.kind in ('D', 'P') and {match}

-- name: merge_clear
-- Rows in the way of inserts, where the quarantine is replayed over them.
delete from {only} {dest} d
using {stage} s
where {chosen} and s.kind in ('I', 'N') and {match}

-- name: merge_update
-- Rows that changed.
update {only} {dest} d
set {sets}
from {stage} s
where {chosen} and s.kind = 'U' and s.shape = {shape} and {match}

-- name: merge_update_latest
-- Rows that changed, where several parts tell of the same columns: the last change of a key counts.
with latest as materialized (
    select distinct on ({keys}) s.*
    from {stage} s
    where {chosen} and s.kind = 'U' and s.shape = {shape}
    order by {keys}, s.ev_last desc
), changed as (
    update {only} {dest} d
    set {sets}
    from latest s
    where {match}
    returning 1
)
select (select count(*) from latest) as latest, (select count(*) from changed) as changed

-- name: merge_insert
-- Rows that are new.
insert into {dest} ({columns}) overriding system value
select {values}
from {stage} s
where {chosen} and s.kind in ('I', 'P') and s.shape = {shape}

-- name: merge_reinsert
-- Rows that changed, for tables where an update could collide in passing with a row that is itself
-- about to change: all old versions go before the first new one comes. The sort sees to that, it
-- cannot hand out a row before the delete below it has ended.
with gone as (
    delete from {only} {dest} d
    using {stage} s
    where {chosen} and s.kind = 'U' and s.shape = {shape} and {match}
    returning s.ev_first{returning}
)
insert into {dest} ({columns}) overriding system value
select {values}
from gone
order by ev_first

-- name: existing
-- How many rows exist that an insert of this batch found missing at the provider.
select count(*)
from {stage} s
join {dest} d on {match}
where {chosen} and s.kind = 'N'

-- name: doubled
-- Does a staged key name several rows of the target? In the role of a replica nobody checks a deferrable key.
select exists (
    select 1
    from (select distinct {keys} from {stage} s where {chosen}) s
    join {only} {dest} d on {match}
    group by {own_keys}
    having count(*) > 1
)

-- name: row_same
-- Rows with the key of a new one, itself among them.
select 1 from {only} {dest} where {match} limit 2

-- name: has_duplicates
-- Is a key staged more than once?
select exists (
    select 1 from {stage} s where {chosen} group by {keys} having count(*) > 1
)

-- name: interleaved
-- Has a key changes in a part that began before the earlier parts' changes of it had ended? Only
-- what lies in the stretch of events that both cover is looked at.
select exists (
    select 1
    from {stage} a
    join {stage} b on {same}
    where a.slice in ({earlier}) and a.ev_last >= {first}
        and b.slice = {part} and b.ev_first <= {reached}
        and a.ev_last >= b.ev_first
)

-- name: fold
-- Several net changes of a key become one, in a slice of its own. A run that overlaps another's
-- cannot be composed with it: that key gets kind '!'.
insert into {stage} (slice, ev_first, ev_last, kind, shape{columns})
select {target}, f.first, f.ev_last,
    (case
        when f.overlap then '!'
        when f.ops like '%X%' or f.ops like '%II%' then 'X'
        when f.ops = '' then 'U'
        when f.ops like 'I%' and f.ops like '%I' then 'I'
        when f.ops like 'I%' then 'N'
        when f.ops like '%I' then 'P'
        else 'D'
    end)::"char",
    f.shape{values}
from (
    select e.*,
        row_number() over (partition by {keys} order by e.ev_first) as nr,
        count(*) over every as runs,
        min(e.ev_first) over every as first,
        bool_or(coalesce(e.ev_first <= e.previous, false)) over every as overlap,
        translate(replace(replace(
            string_agg(e.kind::text, '') over (partition by {keys} order by e.ev_first
                rows between unbounded preceding and unbounded following),
            'N', 'ID'), 'P', 'DI'), 'U', '') as ops
    from (
        select s.*, lag(s.ev_last) over (partition by {keys} order by s.ev_first) as previous
        from {stage} s
        where {chosen}
    ) e
    window every as (partition by {keys})
) f
where f.nr = f.runs

-- name: filter
-- For a table that holds a part of the rows: the staged changes seen through its condition, in a
-- slice of their own. A row that left the part is a delete; one that came in is told from one that
-- stayed when it is merged. One that came and went again (N) is left out: its values are gone, so nobody
-- can tell whether it belonged here and a row of its key would have been in its way. The inner query gives
-- the condition the table's own column names.
insert into {stage} (slice, ev_first, ev_last, kind, shape{columns})
select {target}, f.ev_first, f.ev_last,
    (case when f.kind = 'D' or f.belongs then f.kind::text else 'D' end)::"char",
    case when f.kind = 'D' or f.belongs then f.shape else 0 end{values}
from (
    select s.*,
        s.kind in ('I', 'U', 'P')
            and coalesce((
                select ({condition}
                ) from (select {named}) as {alias}
            ), false) as belongs
    from {stage} s
    where {chosen}
) f
where f.belongs or f.kind in ('D', 'U', 'P')

-- name: merge_insert_missing
-- Rows that an update brought: into the part that this node holds, or where the latest version is kept.
insert into {dest} ({columns}) overriding system value
select {values}
from {stage} s
where {chosen} and s.kind = 'U' and s.shape = {shape}
    and not exists (select 1 from {only} {dest} d where {match})

-- name: staged
-- How many changes are there, and how many of them began before event {after} and went on after it.
select count(*) as n,
    count(*) filter (where s.ev_first <= {after} and s.ev_last > {after}) as astride
from {stage} s
where s.slice in ({slices})

-- name: kinds
-- What is staged, by kind and columns.
select s.kind::text as kind, s.shape, count(*) as n
from {stage} s
where {chosen}
group by 1, 2

-- name: analyze
-- So that the planner knows how much is staged. Of 190,000 rows with five columns of their own: all columns 0.095 s of
-- CPU, these 0.062 s, these with fewer samples 0.011 s; joins need no more.
set local default_statistics_target = 10;
analyze {stage} (slice, kind, shape)

-- name: row_insert
-- One row.
insert into {dest} ({columns}) overriding system value values ({values})

-- name: row_insert_part
-- One row, if it belongs to the part that this node holds and is not there. {alias} is the bare
-- name of the user's table, {there} is another one.
insert into {dest} ({columns}) overriding system value
select {names}
from (select {values}) as {alias}
where ({condition}
    ) and not exists (select 1 from {only} {dest} {there} where {missing})

-- name: row_leave_part
-- A row that an update took out of the part that this node holds.
delete from {only} {dest} where {match} and ({condition}
    ) is not true

-- name: row_leave_own
-- The same for a table that shares its place with others: its own row, which an update takes out of the part.
delete from {only} {dest} where {match} and not coalesce((
    select ({condition}
    ) from (select {values}) as {alias}), false)

-- name: row_update
-- One row by its key.
update {only} {dest} set {sets} where {match}

-- name: row_delete
-- One row by its key.
delete from {only} {dest} where {match}

-- name: referencing
-- Tables whose foreign keys would make the server refuse to truncate this one alone.
select distinct format('"%%s"."%%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')) as from_table
from pg_constraint f
join pg_class c on c.oid = f.conrelid
join pg_namespace n on n.oid = c.relnamespace
where f.contype = 'f' and f.confrelid = to_regclass(%s) and f.conrelid <> f.confrelid

-- name: latest_in_part
-- Where only the latest version of a row is kept, a change puts the new one in the place of any old one.
update {stage} s
set kind = case when s.kind = 'N' then 'D'::"char" else 'P'::"char" end
where {chosen} and s.kind in ('U', 'I', 'N')

-- name: staged_moments
-- The periods that staged rows belong to.
select distinct date_trunc({period}, {moment})::text as moment
from {stage} s
where {chosen} and s.kind in ('I', 'U', 'P')
order by 1

-- name: staged_parts
-- The periods that the events of staged changes belong to.
select distinct s.{part}::text as moment from {stage} s where {chosen} order by 1

-- name: part_moment
-- How to tell the time of a row.
select vedur.partition_moment(%s, %s, %s)

-- name: make_partition
-- The partition of a moment, made if it is not there; null where it is too old.
select vedur.make_partition(%s, %s::jsonb, %s::timestamp)

-- name: make_partition_of
-- The same for a value of the column that decides.
select vedur.make_partition(%s, %s::jsonb, {moment})

-- name: spread_rows
-- Rows of the table itself go to those that inherit from it.
select vedur.spread_rows(%s, %s::jsonb)

-- name: zone
-- The time zone that partitions are cut by.
select vedur.partition_zone()

-- name: may_make_partitions
-- May the role of this session make partitions of a table?
select current_user as role, pg_catalog.pg_has_role(c.relowner, 'USAGE') as owns,
    pg_catalog.has_schema_privilege(n.oid, 'CREATE') as creates
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s

-- name: zone_is_steady
-- Does each of its hours come once?
select vedur.partition_zone_is_steady()

-- name: timeless
-- Are there rows that no partition is for?
select exists (select 1 from {dest} where {field} is null or not pg_catalog.isfinite({field}))

-- name: clock
-- What a clock on the wall shows here.
select to_char(now() at time zone vedur.partition_zone(), 'YYYY-MM-DD HH24:MI:SS')

-- name: row_replace
-- One row of a table whose rows lie in others, as the new version may belong to another one; or one whose identity
-- column takes no update.
with gone as (
    delete from {only} {dest} where {match} returning {kept}
)
insert into {dest} ({columns}) overriding system value
select {values} from gone

-- name: truncate
-- The tables and nothing else.
truncate {tables}

-- name: truncate_by_delete
-- Where a foreign key forbids truncate; in replica role no foreign key looks at a delete.
delete from {only} {dest}

-- name: truncate_part
-- Of a table that several tables of sets share, the rows of one of them.
delete from {only} {dest} where ({condition}
    )

-- name: any_bytes
-- Text comes as it is stored.
set client_encoding = 'SQL_ASCII'

-- name: only_utf8
-- As all connections have it.
set client_encoding = 'UTF8'
