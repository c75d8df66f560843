-- Anyone may ask for the version and see what is installed; nothing else is public.
grant usage on schema vedur to public;
grant select on vedur.component to public;
