create or replace function vedur.capture_arguments(
    i_args text[],
    out queue_name text,
    out skip boolean,
    out backup boolean,
    out deny boolean,
    out pkey text,
    out ignored text[],
    out when_expr text,
    out exprs jsonb)
language plpgsql
immutable
as $$
-- Read the arguments of a capture trigger.
--
-- Parameters: i_args - queue name, then in any order SKIP, backup, deny, ignore=, pkey=, when=,
--     ev_type=, ev_data=, ev_extra1= to ev_extra4=; of a repeated one the last counts.
-- Returns: one row; pkey and when_expr are NULL when not given; exprs maps field to expression.
-- Writes: nothing.
-- Errors: no queue name; an argument that is none of these.
declare
    _arg text;
    _name text;
    _value text;
begin
    queue_name := i_args[array_lower(i_args, 1)];
    skip := false;
    backup := false;
    deny := false;
    ignored := '{}';
    exprs := '{}';
    if queue_name is null then
        raise exception 'pgq trigger must have destination queue as argument'
            using errcode = 'invalid_parameter_value';
    end if;
    foreach _arg in array i_args[array_lower(i_args, 1) + 1 : array_upper(i_args, 1)] loop
        _name := split_part(_arg, '=', 1);
        _value := substr(_arg, length(_name) + 2);
        case
            when _arg in ('SKIP', 'skip') then skip := true;
            when _arg = 'backup' then backup := true;
            when _arg = 'deny' then deny := true;
            when _name = _arg then _name := null;
            when _name = 'pkey' then pkey := _value;
            when _name = 'ignore' then
                select coalesce(array_agg(btrim(c)), '{}')
                into ignored
                from unnest(string_to_array(_value, ',')) as c;
            when _name = 'when' then when_expr := _value;
            when _name in ('ev_type', 'ev_data', 'ev_extra1', 'ev_extra2', 'ev_extra3', 'ev_extra4') then
                exprs := exprs || jsonb_build_object(_name, _value);
            else _name := null;
        end case;
        if _name is null then
            raise exception 'bad param to pgq trigger'
                using errcode = 'invalid_parameter_value', detail = format('The argument is "%s".', _arg);
        end if;
    end loop;
end;
$$;
