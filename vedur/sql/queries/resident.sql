-- Statements of a resident task and of its driver (vedur/pipeline/spark/resident.py, orders.py).

-- name: create_orders
-- The table through which a driver and its task talk. Its owner alone may read and write it.
create unlogged table {orders} (
    number bigint not null,
    answer boolean not null,
    body text not null,
    primary key (number, answer)
)

-- name: drop_orders
-- Nobody talks there any more.
drop table if exists {orders}

-- name: hold
-- This session is there, until it ends: true where no other one says so.
select pg_catalog.pg_try_advisory_lock(%s)

-- name: listen
-- Be woken by the other side.
listen {channel}

-- name: leave
-- This session is not there any more; the other side is woken to see that.
select pg_catalog.pg_advisory_unlock(%s), pg_catalog.pg_notify(%s, '')

-- name: send_order
-- Write an order and wake the task; the order before it, and its answer, are done with.
with gone as (
    delete from {orders} where number = %(number)s - 1
),
written as (
    insert into {orders} (number, answer, body) values (%(number)s, false, %(body)s) returning number
)
select pg_catalog.pg_notify(%(channel)s, '') from written

-- name: read_order
-- The order that is not done yet, and whether the driver has left: then its lock is free, and is taken here.
select pg_catalog.pg_try_advisory_lock_shared(%(driver)s) as alone, o.number, o.body
from (values (true)) as here (here)
left join {orders} o on not o.answer and o.number > %(done)s

-- name: write_answer
-- Answer an order and wake the driver. One that another attempt has answered stays answered.
with written as (
    insert into {orders} (number, answer, body) values (%(number)s, true, %(body)s)
    on conflict do nothing
)
select pg_catalog.pg_notify(%(channel)s, '')

-- name: read_answer
-- The answer to an order, if it is there.
select body from {orders} where number = %s and answer

-- name: is_alone
-- Has the task left? Then its lock is free, and is taken here.
select pg_catalog.pg_try_advisory_lock_shared(%s)

-- name: has_loss
-- Can this role write down why there is no resident task?
select coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass('vedur.resident_loss'), 'insert,update,delete')
    and pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('vedur'), 'usage'), false)

-- name: write_loss
-- From now on live batches are ordinary jobs, for this reason; the time is that of the first loss.
insert into vedur.resident_loss as l (queue_name, reason) values (%s, %s)
on conflict (queue_name) do update set reason = excluded.reason

-- name: forget_loss
-- A resident task works, or none is wanted.
delete from vedur.resident_loss where queue_name = %s
