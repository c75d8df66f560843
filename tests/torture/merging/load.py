"""Writers on all parts: one thread and one connection for each, all paused together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.torture.load import Load, Undo, Work
from tests.torture.merging.schema import PARTS


class PartWriter(Load):
    """Writes to one part."""

    def __init__(
        self, part: str, connect: Callable[[], psycopg.Connection[Any]], seed: int
    ) -> None:
        super().__init__(connect, seed)
        self.part = part
        self.pause_between = 0.12

    def weights(self) -> list[tuple[int, Work]]:
        """What it does, and how often."""
        return [
            (10, self.bills), (6, self.lines), (8, self.notes), (8, self.stock), (3, self.keys),
            (2, self.bulk), (2, self.undone), (2, self.savepoint), (1, self.emptied),
            (6, self.clients),
        ]  # fmt: skip

    def _key(self, most: int) -> int:
        return self.rng.randint(1, most) * len(PARTS) + PARTS.index(self.part)

    def bills(self, db: Any) -> None:
        for _ in range(self.rng.randint(1, 5)):
            i, what = self._key(250), self.rng.random()
            if what < 0.35:
                db.execute(
                    "insert into t.bills values (%s, %s, %s, 0, now()) on conflict do nothing",
                    [i, self.part, f"{self.part} {i}"],
                )
            elif what < 0.85:
                db.execute("update t.bills set v = v + 1, at = now() where id = %s", [i])
            else:
                db.execute("delete from t.bills where id = %s", [i])

    def lines(self, db: Any) -> None:
        db.execute(
            "insert into t.lines select id, g, part, 'y' from t.bills, generate_series(1, %s) g"
            " where id = %s on conflict (bill, nr) do update set what = t.lines.what || '.'",
            [self.rng.randint(1, 4), self._key(250)],
        )
        db.execute("update t.lines set what = 'x' where length(what) > 30")

    def notes(self, db: Any) -> None:
        i, what = self.rng.randint(1, 300), self.rng.random()
        if what < 0.3:
            db.execute(
                "insert into t.notes values (%s, %s, %s, 'new', %s) on conflict do nothing",
                [self.part, i, '{"a": [1, null, "ü"]}', self.rng.choice((None, "NaN", "0.10"))],
            )
        elif what < 0.9:
            pad = self.rng.choice(("", "short", "x" * 400, "y" * 9000))
            text = "update t.notes set pad = %s || random(), n = coalesce(n, 0) + 1 where id = %s"
            db.execute(text, [pad, i])
        else:
            db.execute("delete from t.notes where id = %s", [i])

    def stock(self, db: Any) -> None:
        for _ in range(self.rng.randint(1, 4)):
            i, what = self._key(300), self.rng.random()
            if what < 0.4:
                text = "insert into t.stock values (%s, %s, 1, null) on conflict do nothing"
                db.execute(text, [i, self.part])
            elif what < 0.9:
                text = "update t.stock set amount = amount + 1, note = %s where id = %s"
                db.execute(text, [self.rng.choice((None, "a", "b\\n\t")), i])
            else:
                db.execute("delete from t.stock where id = %s", [i])

    def clients(self, db: Any) -> None:
        """Keys that other parts have, too."""
        a, b, what = self.rng.randint(1, 120), self.rng.randint(1, 120), self.rng.random()
        if what < 0.3:
            text = "insert into t.clients values (%s, %s, 0) on conflict do nothing"
            db.execute(text, [a, f"client {a}"])
        elif what < 0.6:
            db.execute("update t.clients set v = v + 1 where id in (%s, %s)", [a, b])
        elif what < 0.75:  # names swap
            text = "update t.clients set name = %s || id where id = %s"
            for head, row in (("x", a), ("y", b), ("client ", a), ("client ", b)):
                db.execute(text, [head, row])
        elif what < 0.85:
            db.execute("update t.clients set v = v + 1")
        elif what < 0.95:
            db.execute("delete from t.clients where id in (%s, %s)", [a, b])
        elif not self.rng.randint(0, 5):
            db.execute("set local lock_timeout = '2s'")
            db.execute("truncate t.clients")

    def keys(self, db: Any) -> None:
        """Keys change, and swap."""
        a, b = self._key(300), self._key(300)
        text = (
            "update t.stock set id = %s where id = %s"
            " and not exists (select from t.stock where id = %s)"
        )
        db.execute(text, [b, a, b])
        for old, new in ((a, -a - 1), (b, a), (-a - 1, b)):
            db.execute("update t.bills set id = %s where id = %s and id not in"
                       " (select bill from t.lines) and not exists"
                       " (select from t.bills where id = %s)", [new, old, new])  # fmt: skip
        # a swap that stopped half-way has left a key that no other part has, either
        db.execute("delete from t.bills where id < 0")

    def bulk(self, db: Any) -> None:
        db.execute("update t.bills set v = v + 1 where id %% %s = 0", [self.rng.randint(2, 5)])
        db.execute("update t.stock set amount = amount + 1")

    def undone(self, db: Any) -> None:
        self.rng.choice((self.bills, self.notes, self.stock, self.bulk))(db)
        raise Undo

    def savepoint(self, db: Any) -> None:
        self.bills(db)
        try:
            with db.transaction():
                self.rng.choice((self.stock, self.notes))(db)
                raise Undo
        except Undo:
            self.stock(db)

    def emptied(self, db: Any) -> None:
        """A TRUNCATE means the rows of this part; the condition tells them."""
        if self.rng.random() < 0.5:
            return
        db.execute("set local lock_timeout = '2s'")
        db.execute("truncate t.stock")
        db.execute(
            "insert into t.stock select i * %s + %s, %s, i, 'again' from generate_series(1, 80) i",
            [len(PARTS), PARTS.index(self.part), self.part],
        )


class PartsLoad:
    """All of them; satisfies `Writers`."""

    def __init__(self, connect: Callable[[str], psycopg.Connection[Any]], seed: int) -> None:
        self.writers = [
            PartWriter(part, lambda part=part: connect(part), seed * 100 + n)  # type: ignore[misc]
            for n, part in enumerate(PARTS)
        ]

    @property
    def transactions(self) -> int:
        """How many have been committed."""
        return sum(writer.transactions for writer in self.writers)

    def start(self) -> PartsLoad:
        """Begin."""
        for writer in self.writers:
            writer.start()
        return self

    def pause(self) -> None:
        """Returns when nothing is open."""
        for writer in self.writers:
            writer.rest()
        for writer in self.writers:
            writer.pause()

    def resume(self) -> None:
        """Go on."""
        for writer in self.writers:
            writer.resume()

    def stop(self) -> None:
        """End the threads."""
        for writer in self.writers:
            writer.stop()

    def awake(self, limit: float = 60.0) -> None:
        """Wait until every writer has written something from now on."""
        before = [writer.transactions for writer in self.writers]
        deadline = time.monotonic() + limit
        for writer, had in zip(self.writers, before, strict=True):
            while writer.transactions == had:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"nobody writes to {writer.part}")
                time.sleep(0.02)
