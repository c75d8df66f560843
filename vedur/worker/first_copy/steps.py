"""The steps of a first copy, once: for the log, the progress table and the manual."""

from __future__ import annotations

from enum import IntEnum


class Step(IntEnum):
    """Numbered in the order in which a table goes through them; each may be run again."""

    REGISTER = 1
    SNAPSHOT = 2
    IN_COPY = 3
    STRIP = 4
    TRUNCATE = 5
    LOAD = 6
    REBUILD = 7
    CATCH_UP = 8
    HAND_OVER = 9
    FOREIGN_KEYS = 10

    @property
    def title(self) -> str:
        """What an operator reads."""
        return TITLES[self]


TITLES: dict[Step, str] = {
    Step.REGISTER: "register a consumer that holds the queue",
    Step.SNAPSHOT: "take the snapshot",
    Step.IN_COPY: "begin the copy",
    Step.STRIP: "put foreign keys and indexes aside",
    Step.TRUNCATE: "empty the table",
    Step.LOAD: "load",
    Step.REBUILD: "build indexes",
    Step.CATCH_UP: "catch up",
    Step.HAND_OVER: "hand over to the worker",
    Step.FOREIGN_KEYS: "restore foreign keys",
}
