-- As upstream: anybody may call the functions, which work with the rights of the schema's owner; the tables stay closed.
grant usage on schema pgq_ext to public;
grant execute on all functions in schema pgq_ext to public;
revoke execute on function pgq_ext.upgrade_schema() from public;
