create or replace function vedur.raw_stage(i_key text, i_slot integer)
returns regclass
language plpgsql
stable
as $$
-- ----------------------------------------------------------------------
-- Finds the raw staging table of a queue and slot. Others may create in schema vedur_work: a relation of theirs may be a view, a
-- foreign table, have policies or children, and to read it would run their code with our rights. Only its owner can give a
-- table any of that, so the owner is looked at.
--
-- Parameters:
--     i_key           whose, see vedur.raw_stage_key
--     i_slot          slot
-- Returns: the table; null if there is none
-- Writes: nothing
-- Raises: insufficient_privilege if somebody else made it
-- ----------------------------------------------------------------------
declare
    _found record;
begin
    select c.oid::regclass as name, c.relowner, c.relkind into _found
    from pg_class c
    where c.relnamespace = 'vedur_work'::regnamespace
        and c.relname = 'raw_' || i_key || '_' || i_slot;
    if not found then
        return null;
    end if;
    if _found.relkind <> 'r' or _found.relowner <> (select r.oid from pg_roles r where r.rolname = current_user) then
        raise exception 'relation "%" was made by role "%" and is no staging table of Vedur: drop it',
            _found.name, _found.relowner::regrole
            using errcode = 'insufficient_privilege';
    end if;
    return _found.name;
end;
$$;
