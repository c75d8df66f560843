create or replace function vedur.make_partition(
    i_parent text,
    i_how jsonb,
    i_moment timestamp)
returns text
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Find the partition that a moment belongs to; make it if it is not there. A table that is declared partitioned may
-- have one with a name of its own.
--
-- Parameters:
--     i_parent    the table, not quoted
--     i_how       what the handler says: "name", "period", "field", "keys", "function" (quoted), "template",
--                 "before" and "after" (statements), "retention", "drop" (false: old ones stay), "ignore_old"
--     i_moment    a moment inside, as a clock on the wall shows it
-- Returns: the partition's name, quoted; NULL where rows of that time are to be left out
-- Writes: the partition; drops partitions that are older than the time to keep before it makes one
-- Raises: as vedur.partition_name; wrong_object_type for a table of that name that is no partition of the parent;
--         feature_not_supported for hours of a zone that skips or repeats some; what the statements of the handler raise
-- ----------------------------------------------------------------------
declare
    _name text := vedur.partition_name(i_parent, i_how, i_moment);
    _part text := londiste.quote_fqname(_name);
    _period text := i_how ->> 'period';
    _moment timestamp := date_trunc(_period, i_moment);
    _before text := current_setting('timezone');
    _usual boolean := i_how ->> 'template' is null
        and replace(i_how ->> 'function', '"', '') = 'londiste.create_partition';
    _inherits boolean := i_how ->> 'field' is not null or i_how ->> 'retention' is not null or _usual;
    _declared boolean := i_how ->> 'field' is not null and londiste.find_rel_oid(i_parent, 'p') is not null;
    _zoned boolean;
    _there text;
    _words jsonb;
    _statement text;
begin
    select exists (
        select 1 from pg_catalog.pg_attribute a
        where a.attrelid = londiste.find_table_oid(i_parent) and a.attname = i_how ->> 'field'
            and not a.attisdropped and a.atttypid = 'timestamptz'::regtype)
    into _zoned;
    if _zoned and _period = 'hour' and not vedur.partition_zone_is_steady() then
        raise exception 'table "%" cannot have a partition for each hour: hours of time zone % are skipped or repeated',
            i_parent, vedur.partition_zone()
            using errcode = 'feature_not_supported',
                hint = 'Set the time zone of the database to UTC, or choose period=day.';
    end if;
    -- Names, bounds and the time to keep go by the database's own zone, whoever asks.
    perform set_config('timezone', vedur.partition_zone(), true);
    if (i_how ->> 'ignore_old')::boolean
        and londiste.is_obsolete_partition(_name, (i_how ->> 'retention')::interval, _period)
    then
        _part := null;
    elsif londiste.find_table_oid(_name) is null then
        -- One creator at a time, as in londiste.create_partition.
        perform pg_advisory_xact_lock(hashtext('vedur.make_partition'), hashtext(i_parent));
        if _declared then
            _there := vedur.find_partition(i_parent, i_how ->> 'field', _moment);
        end if;
        if _there is not null then
            _name := _there;
            _part := londiste.quote_fqname(_name);
        elsif londiste.find_table_oid(_name) is null then
            if i_how ->> 'retention' is not null and coalesce((i_how ->> 'drop')::boolean, true) then
                perform londiste.drop_obsolete_partitions(
                    i_parent, (i_how ->> 'retention')::interval, _period);
            end if;
            -- A time without a zone is what it says, also where the zone of the database skips an hour.
            if not _zoned then
                perform set_config('timezone', 'UTC', true);
            end if;
            _words := jsonb_build_object(
                'dest', _part, 'part', _part, 'parent', londiste.quote_fqname(i_parent),
                'pkeys', (
                    select coalesce(string_agg(quote_ident(k.name), ', ' order by k.nr), '')
                    from unnest(string_to_array(i_how ->> 'keys', ',')) with ordinality as k (name, nr)),
                'schema_table', replace(_part, '.', '__'),
                'part_field', quote_ident(i_how ->> 'field'), 'part_time', _moment::text, 'period', _period);
            _statement := vedur.partition_text(i_how ->> 'before', _words);
            if _statement is not null then
                execute _statement;
            end if;
            _statement := vedur.partition_text(i_how ->> 'template', _words);
            if _statement is not null then
                execute _statement;
            elsif _usual and _declared then
                perform vedur.attach_partition(i_parent, _name, _moment::timestamptz, _period);
            else
                execute 'select ' || (i_how ->> 'function') || '($1, $2, $3, $4, $5, $6)'
                using i_parent, _name, i_how ->> 'keys', i_how ->> 'field', _moment::timestamptz, _period;
            end if;
            _statement := vedur.partition_text(i_how ->> 'after', _words);
            if _statement is not null then
                execute _statement;
            end if;
            if londiste.find_table_oid(_name) is null then
                raise exception 'no partition "%" was made', _name
                    using errcode = 'undefined_table',
                        hint = 'part_template or part_func must make a table of that name.';
            end if;
        end if;
    end if;
    perform set_config('timezone', _before, true);
    if _part is not null and _inherits and not exists (
        select 1 from pg_catalog.pg_inherits i
        where i.inhrelid = londiste.find_table_oid(_name) and i.inhparent = londiste.find_table_oid(i_parent))
    then
        raise exception 'table "%" is no partition of "%"', _name, i_parent
            using errcode = 'wrong_object_type',
                hint = 'Rename it, let it inherit from the table, or give another part_name.';
    end if;
    return _part;
end;
$$;
