create or replace function vedur.capture_own(i_xmin xid)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
-- Tell whether a row version that this transaction sees was made by this transaction.
--
-- Parameters: i_xmin - its xmin.
-- Returns: true for this transaction and its subtransactions: of all that it sees only these are not over.
-- Writes: nothing.
--
-- Numbers of transactions wrap around, and a frozen row keeps an old one, which may look like one of the future.
declare
    _top bigint := pg_current_xact_id()::text::bigint;
    _ahead bigint := (i_xmin::text::bigint - _top) & 4294967295;
begin
    if _ahead >= 2147483648 then
        return false;
    end if;
    return coalesce(pg_xact_status((_top + _ahead)::text::xid8) = 'in progress', false);
exception
    when invalid_parameter_value then
        return false;
end;
$$;
