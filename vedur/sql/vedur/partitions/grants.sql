-- They run with their caller's rights: partitions belong to the role of the worker.
revoke all on function
    vedur.partition_name(text, jsonb, timestamp), vedur.partition_text(text, jsonb),
    vedur.attach_partition(text, text, timestamptz, text), vedur.make_partition(text, jsonb, timestamp),
    vedur.find_partition(text, text, timestamp), vedur.partition_zone(),
    vedur.partition_zone_is_steady(), vedur.partition_moment(text, text, text), vedur.spread_rows(text, jsonb)
from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_admin', 'londiste_writer'] loop
        if exists (select 1 from pg_catalog.pg_roles where rolname = _role) then
            execute pg_catalog.format(
                'grant execute on function vedur.partition_name(text, jsonb, timestamp),'
                ' vedur.partition_text(text, jsonb), vedur.attach_partition(text, text, timestamptz, text),'
                ' vedur.find_partition(text, text, timestamp), vedur.make_partition(text, jsonb, timestamp),'
                ' vedur.partition_zone(), vedur.partition_zone_is_steady(), vedur.partition_moment(text, text, text),'
                ' vedur.spread_rows(text, jsonb) to %I', _role);
        end if;
    end loop;
end;
$$;
