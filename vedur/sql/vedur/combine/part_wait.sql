-- Parts whose rows come through a combined queue, because this node is a branch of it. The position of such a part moves with the
-- combined queue (vedur.follow_part); its worker carries out the events of the part that are not about rows, and handled_tick is
-- how far it has come with that. The row ends when this node has become the root of the combined queue and the worker has caught up.
-- Until the combined queue has told of the part for the first time, nobody knows up to which tick the tables have it.
create table if not exists vedur.part_wait (
    queue_name      text not null,
    handled_tick    bigint not null,
    told            boolean not null default true,
    constraint part_wait_pkey primary key (queue_name)
);
comment on table vedur.part_wait is 'parts of a combined branch: up to which tick their own events about the set were carried out';

do $$
-- Workers that are not superusers write here, observers read; roles may be missing.
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format('grant select, insert, update, delete on vedur.part_wait to %I', _role);
        end if;
    end loop;
    if exists (select 1 from pg_catalog.pg_roles where rolname = 'londiste_reader') then
        grant select on vedur.part_wait to londiste_reader;
    end if;
end
$$;
