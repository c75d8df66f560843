-- The four tables of the walk-through: two with a key, two log tables that get theirs later.
create table user_info (
    userid          int,
    engname         text,
    cnname          text,
    occupation      text,
    birthday        date,
    signname        text,
    email           text,
    qq              numeric,
    crt_time        timestamp without time zone,
    mod_time        timestamp without time zone
);
create table user_session (
    userid          int,
    logintime       timestamp(0) without time zone,
    login_count     bigint default 0,
    logouttime      timestamp(0) without time zone,
    online_interval interval default interval '0'
);
create table user_login_rec (
    userid          int,
    login_time      timestamp without time zone,
    ip              inet
);
create table user_logout_rec (
    userid          int,
    logout_time     timestamp without time zone,
    ip              inet
);
alter table user_info add constraint pk_user_info primary key (userid);
alter table user_session add constraint pk_user_session primary key (userid);
