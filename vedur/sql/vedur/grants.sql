-- Anyone may ask for the version and see what is installed. The functions of capture are public too, save
-- vedur.capture_bulk: the contract's triggers call them as the user who writes the table. They run with their
-- caller's rights and give none. Tables are for the roles named next to them.
grant usage on schema vedur to public;
grant select on vedur.component to public;
