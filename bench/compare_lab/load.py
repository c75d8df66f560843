"""Writers: one that measures how long each single-row update takes, and pgbench for bulk."""

from __future__ import annotations

import random
import statistics
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare_lab.peers import Ground
from vedur.clock import SYSTEM

#: Updates, deletes with inserts, and new rows; keys below 1,000 are left to planted differences.
SCRIPT = """\\set id random(1000, {rows})
\\set new random({rows} + 1, {rows} + 100000)
update account set amount = amount + 1, opened = now() where id = :id;
with gone as (delete from account where id = :new returning 1)
insert into account select :new, 1, 0, 'new', random(), now() where not exists (select from gone)
    on conflict do nothing;
"""


class Latency:
    """Milliseconds of single updates, collected while a context is open."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def summary(self) -> dict[str, float]:
        """Return median, 99th percentile and maximum."""
        values = sorted(self.all)
        return {
            "updates": len(values),
            "p50": round(statistics.median(values), 2),
            "p99": round(values[int(len(values) * 0.99)], 2),
            "max": round(values[-1], 2),
        }


@contextmanager
def writing(ground: Ground, name: str, into: Latency, pause: float = 0.01) -> Iterator[None]:
    """Update single rows of the compared table from one writer while the context is open."""
    stop = threading.Event()
    pick = random.Random(1)

    def run() -> None:
        with ground.open("root", name) as db:
            while not SYSTEM.wait(stop, pause):
                row = pick.randint(1000, ground.rows)
                began = SYSTEM.monotonic()
                db.execute("update account set amount = amount + 1 where id = %s", [row])
                into.all.append((SYSTEM.monotonic() - began) * 1000)

    thread = threading.Thread(target=run, name="writer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def pgbench(ground: Ground, name: str, rate: int) -> Iterator[None]:
    """Run pgbench with two clients at a steady rate while the context is open."""
    script = Path(ground.lab.base) / "account.sql"
    script.write_text(SCRIPT.format(rows=ground.rows))
    server = ground.lab.servers["root"]
    process = subprocess.Popen(
        [
            server.binaries.path("pgbench"), "-n", "-M", "prepared", "-c", "2", "-j", "1",
            "-R", str(rate), "-T", "86400", "-f", str(script), "-h", "127.0.0.1",
            "-p", str(server.port), "-U", "postgres", name,
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"pgbench ended by itself with {process.returncode}")
    finally:
        process.terminate()
        process.wait()
