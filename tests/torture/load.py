"""A light, steady, random load on the root, which can be paused at a transaction's end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.torture.schema import TYPES_ROW

Work = Callable[[Any], None]


class Load:
    """One thread, one connection; what the root refuses is rolled back and forgotten."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], seed: int) -> None:
        self._connect = connect
        self.rng = random.Random(seed)
        self.pause_between = 0.03
        self.transactions = 0
        self.refused = 0
        #: commits that are known, and transactions whose end is not; None: nobody counts
        self._committed: int | None = None
        self._unknown = 0
        self._reconnect = threading.Event()
        self._running = threading.Event()
        self._idle = threading.Event()
        self._end = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        weights = self.weights()
        self._works = [work for _, work in weights]
        self._weights = [weight for weight, _ in weights]

    def weights(self) -> list[tuple[int, Work]]:
        """What it does, and how often."""
        return [
            (12, self.accounts), (4, self.swap_names), (3, self.swap_slots), (8, self.keys),
            (6, self.orders), (8, self.history), (6, self.types), (3, self.bulk), (9, self.part),
            (3, self.savepoints), (3, self.rolled_back), (2, self.ddl_table), (1, self.truncate),
            (1, self.toast), (2, self.gone), (1, self.everything),
        ]  # fmt: skip

    def start(self) -> Load:
        """Begin."""
        self._thread.start()
        self._running.set()
        return self

    def pause(self) -> None:
        """Returns when nothing is open."""
        self.rest()
        if not self._idle.wait(300):
            raise TimeoutError("the load does not come to rest")

    def rest(self) -> None:
        """Begin no further transaction; `pause` waits for the last one."""
        self._running.clear()

    def resume(self) -> None:
        """Go on."""
        self._idle.clear()  # who pauses it at once waits for it all the same
        self._running.set()

    def reconnect(self) -> None:
        """The next transaction has a new connection: writers were sent elsewhere."""
        self._reconnect.set()

    def begin_count(self) -> None:
        """Count commits from now on; each of them counts itself in t.mark, too."""
        self._committed, self._unknown = 0, 0

    def end_count(self) -> tuple[int, int]:
        """How many commits there were, at least and at most."""
        done, self._committed = self._committed or 0, None
        return done, done + self._unknown

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._running.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        db: psycopg.Connection[Any] | None = None
        while not self._end.is_set():
            if not self._running.is_set():
                self._idle.set()
                self._running.wait()
                continue
            self._idle.clear()
            counting = self._committed is not None
            if self._reconnect.is_set():
                self._reconnect.clear()
                if db is not None:
                    db.close()
            try:
                if db is None or db.closed:
                    db = self._connect()
                work = self.rng.choices(self._works, self._weights)[0]
                with db.transaction():
                    work(db)
                    if counting:
                        # what is counted must outlive a crash of the server
                        db.execute("set local synchronous_commit = on")
                        db.execute("update t.mark set n = n + 1 where id = 1")
                self.transactions += 1
                if self._committed is not None:
                    self._committed += 1
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.refused += 1
                self._unknown += 1
                if db is not None:
                    db.close()
                time.sleep(0.1)
            except (psycopg.Error, Undo):
                self.refused += 1
            time.sleep(self.pause_between)
        self._idle.set()
        if db is not None:
            db.close()

    # -- transactions ---------------------------------------------------------------------------

    def _id(self, most: int) -> int:
        return self.rng.randint(1, most)

    def accounts(self, db: Any) -> None:
        for _ in range(self.rng.randint(1, 6)):
            i, what = self._id(300), self.rng.random()
            if what < 0.3:
                db.execute(
                    "insert into t.acct values (%s, %s, %s, %s) on conflict do nothing",
                    [i, f"n{i}", self.rng.randint(0, 10**6), None],
                )
            elif what < 0.85:
                text = "update t.acct set bal = bal + %s, note = %s where id = %s"
                db.execute(text, [self.rng.random(), self.rng.choice((None, "", "x", "ü\\n")), i])
            else:
                db.execute("delete from t.acct where id = %s", [i])

    def swap_names(self, db: Any) -> None:
        a, b = self._id(300), self._id(300)
        rows = db.execute("select id, name from t.acct where id in (%s, %s)", [a, b]).fetchall()
        if len(rows) == 2:
            (a, one), (b, two) = rows
            for i, name in ((a, None), (b, one), (a, two)):
                db.execute("update t.acct set name = %s where id = %s", [name, i])

    def swap_slots(self, db: Any) -> None:
        a, b = self._id(30), self._id(30)
        db.execute(
            "update t.slot s set pos = o.pos from t.slot o"
            " where (s.id, o.id) in ((%(a)s, %(b)s), (%(b)s, %(a)s))",
            {"a": a, "b": b},
        )

    def keys(self, db: Any) -> None:
        for _ in range(self.rng.randint(1, 4)):
            old, new = self._id(60), self._id(60)
            what = self.rng.random()
            if what < 0.4:
                db.execute(
                    "insert into t.kv values (%s, %s, %s, %s) on conflict do nothing",
                    [old, f"k{new % 5}", '{"a": [1, null]}', new],
                )
            elif what < 0.8:
                text = (
                    "update t.kv set k1 = %s, n = n + 1 where (k1, k2) = (%s, %s) and not exists"
                    " (select from t.kv where (k1, k2) = (%s, %s))"
                )
                k2 = f"k{self._id(5)}"
                db.execute(text, [new, old, k2, new, k2])
            else:
                db.execute("delete from t.kv where k1 = %s", [old])

    def orders(self, db: Any) -> None:
        i = self._id(80)
        if self.rng.random() < 0.3:
            db.execute("delete from t.orders where id = %s", [i])
            return
        db.execute(
            "insert into t.orders values (%s, 'new', now())"
            " on conflict (id) do update set state = t.orders.state || '+', placed = now()",
            [i],
        )
        db.execute("update t.orders set state = 'new' where length(state) > 40")
        db.execute(
            "insert into t.lines select g, %s, g, 'y' from generate_series(1, %s) g"
            " on conflict (ord, id) do update set qty = t.lines.qty + 1",
            [i, self.rng.randint(1, 5)],
        )

    def history(self, db: Any) -> None:
        db.execute(
            "insert into t.hist (acct, amount, at) select g, random() * 100, clock_timestamp()"
            " from generate_series(1, %s) g",
            [self.rng.randint(1, 20)],
        )
        if self.rng.random() < 0.2:
            db.execute(
                "delete from t.hist where id in (select id from t.hist order by id limit 50)"
            )
            db.execute("select nextval('t.free_seq') from generate_series(1, 3)")

    def types(self, db: Any) -> None:
        i = self._id(60)
        if self.rng.random() < 0.5:
            db.execute("delete from t.types where id = %s", [i])
        db.execute(f"insert into t.types {TYPES_ROW} on conflict do nothing", {"id": i})
        db.execute("update t.types set tstz = now(), tx = tx || 'é' where id = %s", [self._id(60)])
        db.execute("update t.types set tx = null where length(tx) > 60")

    def bulk(self, db: Any) -> None:
        first = self._id(3000)
        count = self.rng.choice((200, 600, 1500))
        text = "update t.big set v = v + 1 where id between %s and %s"
        db.execute(text, [first, first + count])
        if self.rng.random() < 0.3:
            db.execute("delete from t.big where id between %s and %s", [first, first + 200])
        elif self.rng.random() < 0.5:
            db.execute(
                "insert into t.big select g, 0, md5(g::text) from generate_series(%s, %s) g"
                " on conflict do nothing",
                [first, min(3000, first + 400)],
            )

    def part(self, db: Any) -> None:
        for _ in range(self.rng.randint(1, 5)):
            i, what = self._id(300), self.rng.random()
            note = self.rng.choice((None, "hidden", "seen"))
            if what < 0.3:
                db.execute(
                    "insert into t.part values (%s, %s, %s, 0) on conflict do nothing",
                    [i, self.rng.randint(0, 9), note],
                )
            elif what < 0.7:
                text = "update t.part set grp = %s, note = %s, v = v + 1 where id = %s"
                db.execute(text, [self.rng.randint(0, 9), note, i])
            elif what < 0.85:
                text = (
                    "update t.part set id = %s where id = %s"
                    " and not exists (select from t.part where id = %s)"
                )
                new = self._id(300)
                db.execute(text, [new, i, new])
            else:
                db.execute("delete from t.part where id = %s", [i])

    def savepoints(self, db: Any) -> None:
        self.accounts(db)
        for _ in range(3):
            try:
                with db.transaction():
                    self.rng.choice((self.accounts, self.part, self.keys, self.history))(db)
                    if self.rng.random() < 0.5:
                        raise Undo
            except Undo:
                pass

    def rolled_back(self, db: Any) -> None:
        self.rng.choice((self.accounts, self.part, self.bulk, self.types))(db)
        raise Undo

    def ddl_table(self, db: Any) -> None:
        db.execute(
            "insert into t.ddl (id, note) values (%s, 'a') on conflict (id)"
            " do update set note = case when t.ddl.note = 'a' then 'b' else 'a' end",
            [self._id(40)],
        )

    def truncate(self, db: Any) -> None:
        what = self.rng.choice(("t.hist", "t.kv", "t.orders, t.lines", "t.types", "t.hist, t.gone"))
        db.execute("set local lock_timeout = '2s'")
        db.execute(f"truncate {what}")
        if self.rng.random() < 0.5:
            self.history(db)

    def toast(self, db: Any) -> None:
        text = "update t.acct set note = repeat(md5(random()::text), %s) where id = %s"
        db.execute(text, [self.rng.choice((10, 400, 3000)), self._id(300)])
        db.execute("update t.acct set note = null where id = %s and length(note) > 300", [1])

    def gone(self, db: Any) -> None:
        i = self._id(20)
        db.execute("insert into t.gone values (%s, 'x') on conflict do nothing", [i])
        db.execute("update t.gone set v = v || 'y' where id = %s and length(v) < 50", [i])

    def everything(self, db: Any) -> None:
        for work in (self.accounts, self.keys, self.orders, self.history, self.types, self.part):
            work(db)


class Undo(Exception):
    """Roll back, on purpose."""
