-- Of which tables a branch passes on a part only: events of rows for which a condition holds. One line for each table and
-- condition; while until_tick is null the events that come are filtered, else those behind it are not. Nodes below read it
-- through vedur.passed_parts, and a branch among them keeps lines for its own queue. vedur.note_passed_parts alone writes it. By
-- queue_id, because a queue that is made anew under the same name gets another one.
create table if not exists vedur.passed_part (
    queue_id        integer not null,
    table_name      text not null,
    condition       text not null,
    until_tick      bigint
);
-- a condition may be longer than an index entry
create unique index if not exists passed_part_key on vedur.passed_part (queue_id, table_name, md5(condition));
comment on table vedur.passed_part is 'conditions by which events are left out of the queue of a branch';
