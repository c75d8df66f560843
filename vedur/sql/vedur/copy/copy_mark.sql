-- On the source of first copies: what each has written here behind its snapshot. A server that was set back (a backup, a standby
-- that was behind) and still has the mark has all that the snapshot saw, and gives the transaction numbers of the snapshot to
-- nobody else. By sub_id, because a subscription that is made anew under the same name gets another one.
create table if not exists vedur.copy_mark (
    sub_id          integer not null,
    mark            text not null,
    marked_at       timestamptz not null default clock_timestamp(),
    constraint copy_mark_pkey primary key (sub_id)
);
comment on table vedur.copy_mark is
    'what first copies that read from this node have written here behind their snapshots: without its mark a copy begins anew';
