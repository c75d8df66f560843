"""Growth with the number of tables: each batch changes every one of them.

The same number of changes over the same number of rows each time, spread over more and more tables;
first as a backlog (time per event, memory), then live: every half second a transaction of 1,000
changes that touches all tables, and how long it takes until it is visible. Whether 500 tables keep
up with 100 is seen in both.
"""

from __future__ import annotations

import threading
from typing import Any

from bench.field import TABLES, Field, Vedur
from bench.stats import quantiles
from vedur.clock import SYSTEM

#: Rows that are changed, in all tables together.
SPAN = 200_000
LIVE = 1000
LOAD = """
create procedure spread(tables int, changes int, seed float8) language plpgsql as $$
declare
    rows int := {span} / tables;
begin
    perform setseed(seed);
    for i in 0 .. changes - 1 loop
        execute format('update t_%s set n = n + 1, note = %L where id = %s',
            1 + i % tables, 'change ' || i, 1 + floor(random() * rows));
        if i % 10 = 9 then
            commit;
        end if;
    end loop;
end $$;
create procedure touch_all(tables int, changes int, number int) language plpgsql as $$
begin
    perform setseed(0.5);
    for i in 0 .. changes - 1 loop
        execute format('update t_%s set n = n + 1 where id = %s',
            1 + i % tables, 1 + floor(random() * {span} / tables));
    end loop;
    update user_session set login_count = number where userid = 1;
end $$;
"""


def names(count: int) -> list[str]:
    """Return the tables of a size; user_session shows what has arrived."""
    return [f"t_{i}" for i in range(1, count + 1)]


def create(ground: Field, peer: str, sizes: list[int]) -> None:
    """Create tables on both sides, each with the rows that the smallest size with it needs."""
    ground.database(peer)
    for side in ("root", "leaf"):
        with ground.open(side, peer) as db:
            known = 0
            for size in sizes:
                for table in names(size)[known:]:
                    db.execute(
                        f"create table {table} (id int primary key, n int default 0, note text);"
                        f"insert into {table} (id, note)"
                        f" select g, 'row ' || g from generate_series(1, {SPAN // size}) g"
                    )
                known = size
            db.execute("vacuum analyze")
    with ground.open("root", peer) as db:
        db.execute(LOAD.replace("{span}", str(SPAN)))


def add(peer: Vedur, new: list[str]) -> None:
    """Add more tables to replication; both sides have the same rows."""
    lab = peer.ground.lab
    lab.londiste("root", "add-table", *new, timeout=900)
    lab.londiste("leaf", "add-table", "--expect-sync", *new, timeout=900)


def backlog(peer: Vedur, count: int, events: int) -> float:
    """Make changes over that many tables; returns the seconds that they took."""
    began = SYSTEM.monotonic()
    each = events // 2

    def write(seed: float) -> None:
        with peer.ground.open("root", peer.name) as db:
            db.execute(f"call spread({count}, {each}, {seed})")

    # Two writers at once would wait for each other's rows, in different order: a deadlock.
    for seed in (0.1, 0.2):
        write(seed)
    return SYSTEM.monotonic() - began


def live(peer: Vedur, count: int, seconds: int) -> dict[str, Any]:
    """Run a transaction over all tables every half second; returns times from commit to visible."""
    ground = peer.ground
    sent: dict[int, float] = {}
    found: dict[int, float] = {}
    total = seconds * 2

    def send() -> None:
        began = SYSTEM.monotonic()
        with ground.open("root", peer.name) as db:
            for number in range(1, total + 1):
                db.execute(f"call touch_all({count}, {LIVE}, {number})")
                sent[number] = SYSTEM.monotonic()
                SYSTEM.sleep(max(0.0, began + number / 2 - SYSTEM.monotonic()))

    with ground.open("root", peer.name) as db:
        db.execute("update user_session set login_count = 0 where userid = 1")
    text = "select login_count from user_session where userid = 1"
    sender = threading.Thread(target=send)
    with ground.open("leaf", peer.name) as db:
        while db.value(text) != 0:
            SYSTEM.sleep(0.05)
        sender.start()
        deadline = SYSTEM.monotonic() + seconds + 120
        last = 0
        while last < total and SYSTEM.monotonic() < deadline:
            now = int(db.value(text))
            for number in range(last + 1, now + 1):
                found[number] = SYSTEM.monotonic()
            last = now
            SYSTEM.sleep(0.005)
    sender.join()
    lags = [found[n] - sent.get(n, found[n]) for n in sorted(found)]
    half = len(lags) // 2
    return {
        "live_lost": total - last,
        "live": {k: round(v, 3) for k, v in quantiles(lags).items()},
        # It keeps up when the second half of the transactions waits no longer than the first.
        "live_p50_halves": [
            round(quantiles(part)["p50"], 3) for part in (lags[:half], lags[half:])
        ],
    }


def everything(count: int) -> tuple[str, ...]:
    """Return the content that must be equal on both sides."""
    return (*TABLES, *names(count))
