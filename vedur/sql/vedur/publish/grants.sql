-- Who runs a node publishes; who reads from one may ask what it shows, and say that a copy goes by that.
revoke all on function
    vedur.publish(text, integer, bigint[], bigint, bigint[], timestamptz[], bigint[], text[], bigint),
    vedur.create_raw_stage(text, integer), vedur.drop_raw_stages(text), vedur.copies_by_snapshot(text),
    vedur.follow_settings(text, integer, interval, interval, interval),
    vedur.shown_tick(text), vedur.mark_tick_copy(text, text),
    vedur.passed_parts(text, bigint), vedur.note_passed_parts(text, bigint, text[], text[], bigint[]),
    vedur.event_key(bigint, text, text, text[]), vedur.event_table(text, text),
    vedur.lock_branch(text), vedur.check_new_ticks(integer, bigint[], timestamptz[], bigint[]),
    vedur.raw_stage(text, integer), vedur.raw_stage_key(text), vedur.burn_numbers(regclass, integer),
    vedur.tick_borders(bigint[], text[]), vedur.snapshots_of_branch(txid_snapshot, txid_snapshot, bigint[])
from public;

do $$
declare
    _role text;
begin
    foreach _role in array array['pgq_reader', 'pgq_admin', 'londiste_reader', 'londiste_writer'] loop
        continue when not exists (select 1 from pg_catalog.pg_roles where rolname = _role);
        execute pg_catalog.format(
            'grant execute on function vedur.shown_tick(text), vedur.mark_tick_copy(text, text),'
            ' vedur.passed_parts(text, bigint) to %I', _role);
        continue when _role in ('pgq_reader', 'londiste_reader');
        execute pg_catalog.format(
            'grant execute on function'
            ' vedur.publish(text, integer, bigint[], bigint, bigint[], timestamptz[], bigint[], text[], bigint),'
            ' vedur.create_raw_stage(text, integer), vedur.drop_raw_stages(text), vedur.copies_by_snapshot(text),'
            ' vedur.note_passed_parts(text, bigint, text[], text[], bigint[]),'
            ' vedur.event_key(bigint, text, text, text[]), vedur.event_table(text, text),'
            ' vedur.follow_settings(text, integer, interval, interval, interval) to %I',
            _role);
    end loop;
end;
$$;
