"""python -m bench.capture [--seconds N] [--rounds N] [--clients N] [--variants a,b]

Starts its own PostgreSQL 15 with upstream's extension at hand, one database per variant, and runs
them in turn, round after round, so that noise from outside hits all alike. Prints medians, their
ratio to the C trigger of the same round, and the spread; writes JSON to bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench.field import machine
from vedur import db as vdb
from vedur.db.install import install
from vedur.demo.server import Server, available

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")
MAJOR = 15

# The walk-through's four tables, their pgbench scripts, and the ways to capture them.
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


def database(name: str) -> str:
    return "bench_" + name.replace(" ", "_").lower()


def prepare(server: Server, variant: str) -> None:
    upstream, statement = VARIANTS[variant]
    with vdb.connect(server.connstr(), autocommit=True) as admin:
        admin.execute(f"create database {database(variant)}")
    with vdb.connect(server.connstr(database(variant)), autocommit=True) as db:
        if upstream:
            db.execute("create extension pgq")
        else:
            with db.transaction():
                install(db)
        db.execute("select pgq.create_queue('q')")
        db.execute(SCHEMA)
        for table in TABLES:
            if statement:
                db.execute(statement.format(table))


def clean(server: Server, variant: str) -> None:
    with vdb.connect(server.connstr(database(variant)), autocommit=True) as db:
        db.execute("truncate pgq.event_1_0, pgq.event_1_1, pgq.event_1_2")
        db.execute("truncate user_login_rec, user_logout_rec")
        db.execute("vacuum user_session")
        db.execute("checkpoint")


def throughput(
    server: Server, variant: str, seconds: int, clients: int, scripts: list[str]
) -> float:
    clean(server, variant)
    command = [
        server.binaries.path("pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "2",
        "-T", str(seconds), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres",
    ]  # fmt: skip
    for script in scripts:
        command += ["-f", script]
    done = subprocess.run([*command, database(variant)], capture_output=True, text=True, check=True)
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
    assert found, done.stdout
    return float(found[1])


def bulk(server: Server, variant: str) -> float:
    clean(server, variant)
    with vdb.connect(server.connstr(database(variant))) as db:
        db.execute("set statement_timeout = '300s'")
        start = time.monotonic()
        db.execute(BULK)
        took = time.monotonic() - start
        db.rollback()
    return took


def summary(runs: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Compute median, spread, and the median of the ratios to the C trigger within one round."""
    result = {}
    for variant, values in runs.items():
        ratios = [v / c for v, c in zip(values, runs["C"], strict=True)]
        result[variant] = {
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
        }
    return result


def show(title: str, unit: str, result: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}\n{'':12} {unit:>9} {'min':>9} {'max':>9}   ratio to C (min..max)")
    for variant, row in result.items():
        print(
            f"{variant:12} {row['median']:9.2f} {row['min']:9.2f} {row['max']:9.2f}"
            f"   {row['ratio']:.2f} ({row['ratio_min']:.2f}..{row['ratio_max']:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.capture", description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="length of one pgbench run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    args = parser.parse_args()
    variants = [v for v in VARIANTS if v in args.variants.split(",") or v in ("none", "C")]
    binaries = available("debian").get(MAJOR)
    if binaries is None:
        parser.exit(1, "PostgreSQL 15 of Debian is missing: apt install postgresql-15-pgq3\n")
    with tempfile.TemporaryDirectory(prefix="vedur-bench-") as base:
        settings = {"shared_buffers": "512MB", "max_wal_size": "8GB", "autovacuum": "off"}
        server = Server(binaries, Path(base) / "pg", settings=settings).start()
        try:
            scripts = []
            for name, text in (("login", LOGIN), ("logout", LOGOUT)):
                path = Path(base) / f"{name}.sql"
                path.write_text(text)
                scripts.append(str(path))
            for variant in variants:
                prepare(server, variant)
            tps: dict[str, list[float]] = {v: [] for v in variants}
            times: dict[str, list[float]] = {v: [] for v in variants}
            loads = []
            for number in range(args.rounds):
                loads.append(os.getloadavg()[0])
                for variant in variants:
                    tps[variant].append(
                        throughput(server, variant, args.seconds, args.clients, scripts)
                    )
                for variant in variants:
                    times[variant].append(bulk(server, variant))
                print(f"[{number + 1}/{args.rounds}] round {number + 1} is over", flush=True)
        finally:
            server.destroy()
    report = {
        "seconds": args.seconds, "rounds": args.rounds, "clients": args.clients,
        "load_before_rounds": loads, "tps": summary(tps), "bulk_seconds": summary(times),
        "machine": machine(),
    }  # fmt: skip
    show("login.sql + logout.sql, higher is better", "tps", summary(tps))
    show("one UPDATE of 200,000 rows, lower is better", "seconds", summary(times))
    print(f"\nload average before each round: {', '.join(f'{x:.1f}' for x in loads)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / "capture.json"
    target.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written: {target}")


if __name__ == "__main__":
    main()
