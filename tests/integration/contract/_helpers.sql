create function public.evs(q text)
returns table (ev_type text, ev_data text, e1 text, e2 text, e3 text, e4 text)
language plpgsql
as $$
begin
    return query execute format(
        'select ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4 from %s order by ev_id',
        (select queue_data_pfx from pgq.queue where queue_name = q));
end;
$$;

create function public.trgs(t text)
returns table (def text)
language sql
as $$
    select pg_get_triggerdef(oid)
    from pg_trigger
    where tgrelid = t::regclass
        and not tgisinternal
    order by tgname;
$$;

create function public.query_seq(s text)
returns table (last_value bigint, is_called boolean)
language plpgsql
as $$
begin
    return query execute 'select last_value, is_called from ' || s;
end;
$$;
