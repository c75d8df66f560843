create or replace function londiste.copy_table_actions(i_source oid, i_dest oid)
returns void
language plpgsql
as $$
-- ----------------------------------------------------------------------
-- Give a table the triggers, rules and owner of another one, as they are switched there.
--
-- Triggers that write under a name of the set stay behind: changes of the other table, above
-- all its TRUNCATE, would be taken for those of the first.
--
-- Parameters: i_source - table to take them from; i_dest - table to give them to.
-- Returns: nothing.
-- Writes: triggers, rules and owner of the table.
-- Raises: errors of the statements.
-- ----------------------------------------------------------------------
declare
    _row record;
    _modes jsonb := '{"D": "disable", "A": "enable always", "R": "enable replica"}';
    _from text;
    _to text;
    _owner name;
    _at integer;
begin
    select format('%I.%I', n.nspname, c.relname), pg_get_userbyid(c.relowner)
    into _from, _owner
    from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = i_source;
    select format('%I.%I', n.nspname, c.relname)
    into _to
    from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = i_dest;

    for _row in
        select g.tgname, g.tgenabled::text as mode, pg_get_triggerdef(g.oid) as def
        from pg_catalog.pg_trigger g
            join pg_catalog.pg_proc f on f.oid = g.tgfoid
            join pg_catalog.pg_namespace n on n.oid = f.pronamespace
        where g.tgrelid = i_source
            and not g.tgisinternal
            and n.nspname not in ('vedur', 'vedur_work', 'londiste')
            and pg_catalog.encode(g.tgargs, 'escape') !~ 'ev_extra1='
        order by g.tgname
    loop
        -- The name of a trigger may hold anything, so the table is looked for behind it.
        _at := strpos(_row.def, quote_ident(_row.tgname)) + length(quote_ident(_row.tgname));
        _at := _at - 1 + strpos(substr(_row.def, _at), ' ON ' || _from || ' ');
        execute overlay(_row.def placing ' ON ' || _to || ' ' from _at for length(' ON ' || _from || ' '));
        if _modes ? _row.mode then
            execute format('alter table %s %s trigger %I', _to, _modes ->> _row.mode, _row.tgname);
        end if;
    end loop;

    for _row in
        select r.rulename, r.ev_enabled::text as mode, pg_get_ruledef(r.oid) as def
        from pg_catalog.pg_rewrite r
        where r.ev_class = i_source
            and r.rulename <> '_RETURN'
        order by r.rulename
    loop
        execute regexp_replace(
            _row.def, regexp_replace(_from, E'([^\\w])', E'\\\\\\1', 'g') || E'(?![\\w$"])', replace(_to, E'\\', E'\\\\'), 'g');
        if _modes ? _row.mode then
            execute format('alter table %s %s rule %I', _to, _modes ->> _row.mode, _row.rulename);
        end if;
    end loop;

    if _owner <> current_user then
        execute format('alter table %s owner to %I', _to, _owner);
    end if;
end;
$$;
