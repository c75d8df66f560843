-- Which tick a consumer of this node has applied, beside the bare number that pgq_node.local_state has. Numbers of ticks are
-- used again after the provider was restored from a backup or replaced by a standby that was behind; its time, its event
-- number and its snapshot tell two ticks of one number apart. Written in the transaction of the batch.
create table if not exists vedur.position (
    queue_name      text not null,
    consumer_name   text not null,
    provider_node   text not null,
    tick_id         bigint not null,
    tick_time       timestamptz not null,
    tick_event_seq  bigint not null,
    tick_snapshot   text not null,
    constraint position_pkey primary key (queue_name, consumer_name)
) with (fillfactor = 50);
comment on table vedur.position is
    'the tick that a consumer of this node applied last, so that another tick of the same number is not taken for it';

-- Tables whose rows "rejoin" still has to make equal. Until then their state is none, and no first copy of them begins.
create table if not exists vedur.rejoin (
    queue_name      text not null,
    table_name      text not null,
    table_nr        integer not null,
    begun_at        timestamptz not null default clock_timestamp(),
    constraint rejoin_pkey primary key (queue_name, table_name)
);
comment on table vedur.rejoin is
    'tables that "rejoin" has yet to compare and repair; table_nr is londiste.table_info.nr: a table that is added anew is another';

do $$
-- Workers that are not superusers write here, observers read; roles may be missing.
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant select, insert, update, delete on vedur.position, vedur.rejoin to %I', _role);
        end if;
    end loop;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_reader') then
        grant select on vedur.position, vedur.rejoin to londiste_reader;
    end if;
end
$$;
