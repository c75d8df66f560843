-- First copies that read this node's tables at a tick (vedur.shown_tick) and not at a transaction snapshot. Any other consumer
-- whose name has ".copy." in it is taken for upstream's, and vedur.publish serves it tick by tick. By sub_id, because a
-- subscription that is made anew under the same name gets another one.
create table if not exists vedur.tick_copy (
    sub_id          integer not null,
    marked_at       timestamptz not null default clock_timestamp(),
    constraint tick_copy_pkey primary key (sub_id)
);
comment on table vedur.tick_copy is 'subscriptions of first copies that go by the tick that a branch shows';
