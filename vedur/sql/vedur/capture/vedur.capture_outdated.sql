create or replace function vedur.capture_outdated(i_xmax xid)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether a row of the catalog that this transaction sees may have been changed since its snapshot.
--
-- Parameters: i_xmax - its xmax.
-- Returns: false if the row is the latest one; true if it is not, or if that cannot be told.
-- Writes: nothing.
--
-- A change that was rolled back leaves its number behind, and so does whoever locked the row. Of transactions that
-- were over at the snapshot, those that changed the row do not show it any more. The 32 bits are read as the number
-- that is nearest to the one of this transaction; what cannot be such a number belongs to several who locked the row.
declare
    _now bigint := coalesce(pg_current_xact_id_if_assigned(), pg_snapshot_xmax(pg_current_snapshot()))::text::bigint;
    _xmax bigint := _now + ((i_xmax::text::bigint - _now + 2147483648) & 4294967295) - 2147483648;
begin
    return i_xmax <> '0'::xid
        and _xmax >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        and coalesce(pg_xact_status(_xmax::text::xid8) <> 'aborted', true);
exception
    when invalid_parameter_value then
        return true;
end;
$$;
