"""The walk-through's four tables, their pgbench scripts, and the ways to capture them."""

from __future__ import annotations

TABLES = ("user_info", "user_session", "user_login_rec", "user_logout_rec")
USERS = 200_000

SCHEMA = f"""
create table user_info (
    userid int primary key, engname text, cnname text, occupation text, birthday date,
    signname text, email text, qq numeric, crt_time timestamp, mod_time timestamp);
create table user_session (
    userid int primary key, logintime timestamp(0), login_count bigint default 0,
    logouttime timestamp(0), online_interval interval default interval '0');
create table user_login_rec (
    userid int, login_time timestamp, ip inet, id bigserial primary key);
create table user_logout_rec (
    userid int, logout_time timestamp, ip inet, id bigserial primary key);
insert into user_info
select g, 'name', 'name', 'DBA', '1970-01-01', 'a signature of some length', 'mail@example.org',
    276732431, clock_timestamp(), null
from generate_series(1, {USERS}) as g;
insert into user_session (userid) select generate_series(1, {USERS});
analyze;
"""

LOGIN = f"""\\set userid random(1, {USERS})
select userid,engname,cnname,occupation,birthday,signname,email,qq from user_info
    where userid=:userid;
insert into user_login_rec (userid,login_time,ip) values (:userid,now(),inet_client_addr());
update user_session set logintime=now(),login_count=login_count+1 where userid=:userid;
"""

LOGOUT = f"""\\set userid random(1, {USERS})
insert into user_logout_rec (userid,logout_time,ip) values (:userid,now(),inet_client_addr());
update user_session set logouttime=now(),online_interval=online_interval+(now()-logintime)
    where userid=:userid;
"""

BULK = "update user_session set login_count = login_count + 1"

#: name: (upstream's pgq?, statement per table). The others are held against the C trigger.
VARIANTS: dict[str, tuple[bool, str]] = {
    "none": (False, ""),
    "C": (
        True,
        "create trigger _londiste_q after insert or update or delete on {0}"
        " for each row execute function pgq.logutriga('q')",
    ),
    "row": (False, "select vedur.create_capture('q', '{0}', '_londiste_q', 'json')"),
    "row urlenc": (False, "select vedur.create_capture('q', '{0}', '_londiste_q', 'urlenc')"),
    "bulk": (
        False,
        "select vedur.create_capture('q', '{0}', '_londiste_q', 'json', 'IUD', 'bulk')",
    ),
}
