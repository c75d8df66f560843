create or replace function pgq.upgrade_schema()
returns integer
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Adds to the tables what an older version of the schema lacks.
--
-- Parameters: none
-- Returns: number of changes; 0 if all was there
-- Writes: structure of pgq.queue
-- Raises: insufficient_privilege for anyone but the owner
-- ----------------------------------------------------------------------
declare
    _column record;
    _count integer := 0;
begin
    for _column in
        select v.name, v.definition
        from (values
            ('queue_disable_insert', 'boolean not null default false'),
            ('queue_ticker_paused', 'boolean not null default false'),
            ('queue_per_tx_limit', 'integer'),
            ('queue_extra_maint', 'text[]')
        ) as v (name, definition)
        where not exists (
            select 1
            from pg_catalog.pg_attribute a
            where a.attrelid = 'pgq.queue'::regclass
                and a.attname = v.name
                and not a.attisdropped)
    loop
        execute pg_catalog.format('alter table pgq.queue add column %I %s', _column.name, _column.definition);
        _count := _count + 1;
    end loop;
    return _count;
end;
$$;
