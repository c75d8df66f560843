-- First copy, on the target: which slices of a table are loaded, and how far a copy has come.
-- A slice is marked in the transaction that loads it, so a task that runs twice loads once.

create table if not exists vedur.copy_slice (
    queue_name      text not null,
    table_name      text not null,
    slice_nr        integer not null,
    source_schema   text not null,
    source_name     text not null,
    page_from       bigint not null,
    page_to         bigint,
    done_at         timestamptz,
    rows_done       bigint,
    bytes_done      bigint,
    constraint copy_slice_pkey primary key (queue_name, table_name, slice_nr)
);
comment on table vedur.copy_slice is
    'first copy: ranges of pages of the source; page_to NULL is open-ended; done_at is set in the transaction that loaded the range; slice_nr -1: all rows of a part of a merged table are there';

create table if not exists vedur.copy_progress (
    queue_name      text not null,
    table_name      text not null,
    dest_table      text not null,
    step            integer not null,
    step_name       text not null,
    snapshot        text,
    mark            text,
    slices          integer not null default 0,
    slices_done     integer not null default 0,
    rows_estimated  bigint,
    rows_done       bigint not null default 0,
    bytes_estimated bigint,
    bytes_done      bigint not null default 0,
    started_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default clock_timestamp(),
    finished_at     timestamptz,
    error           text,
    error_step      integer,
    constraint copy_progress_pkey primary key (queue_name, table_name)
);
comment on table vedur.copy_progress is
    'first copy: the step that each table is in (docs/design/first-copy.md), its counts, and the error that holds it up, with the step at which it came; mark is what vedur.copy_mark of the source has of the snapshot; null: the source keeps no marks';

do $$
-- Workers that are not superusers write here, observers read; roles may be missing.
begin
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_writer') then
        grant select, insert, update, delete on vedur.copy_slice, vedur.copy_progress to londiste_writer;
    end if;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_reader') then
        grant select on vedur.copy_slice, vedur.copy_progress to londiste_reader;
    end if;
end
$$;
