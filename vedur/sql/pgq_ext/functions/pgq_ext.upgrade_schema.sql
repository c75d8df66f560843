create or replace function pgq_ext.upgrade_schema()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Adds the columns for subconsumers to tables of a version that did not have them (before 3.0).
--
-- Parameters: none
-- Returns: number of tables changed; 0 if all was there
-- Writes: structure of the tables
-- Raises: insufficient_privilege for anyone but the owner
-- ----------------------------------------------------------------------
declare
    _table record;
    _count integer := 0;
begin
    for _table in
        select v.name, v.key
        from (values
            ('completed_tick', 'consumer_id, subconsumer_id'),
            ('completed_batch', 'consumer_id, subconsumer_id'),
            ('completed_event', 'consumer_id, subconsumer_id, batch_id, event_id'),
            ('partial_batch', 'consumer_id, subconsumer_id')
        ) as v (name, key)
        where not exists (
            select 1
            from pg_catalog.pg_attribute a
            where a.attrelid = pg_catalog.to_regclass('pgq_ext.' || v.name)
                and a.attname = 'subconsumer_id'
                and not a.attisdropped)
    loop
        execute pg_catalog.format('alter table pgq_ext.%I drop constraint %I', _table.name, _table.name || '_pkey');
        execute pg_catalog.format('alter table pgq_ext.%I add column subconsumer_id text not null default ''''', _table.name);
        execute pg_catalog.format('alter table pgq_ext.%I add constraint %I primary key (%s)',
            _table.name, _table.name || '_pkey', _table.key);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
