"""States of a table on its way into replication, and who moves it on. Pure.

    state            owner of the next step   next            when
    (none)           worker                   in-copy         a copy slot is free
    in-copy          copy                     catching-up     data is there, snapshot stored
    catching-up      copy                     wanna-sync:T    no batch is left to catch up with
    wanna-sync:T     worker                   do-sync:T2      the worker's batch ends at T2 >= T
    do-sync:T2       copy                     ok              the copy has reached exactly T2
    ok               worker                   (snapshot off)  no event of the copy can come again

`resync` takes any state back to none, and a script takes those but ok (`scripts.py`); so does a
move of the node away from a provider that is gone (`anew.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vedur.catalog.tables import is_in_sync
from vedur.change.snapshot import Snapshot
from vedur.errors import StateError


class State(StrEnum):
    """The word before the colon."""

    NONE = ""
    IN_COPY = "in-copy"
    CATCHING_UP = "catching-up"
    WANNA_SYNC = "wanna-sync"
    DO_SYNC = "do-sync"
    OK = "ok"


class Owner(StrEnum):
    """Who makes the next transition."""

    WORKER = "worker"
    COPY = "copy"


_NEXT: dict[State, tuple[Owner, State]] = {
    State.NONE: (Owner.WORKER, State.IN_COPY),
    State.IN_COPY: (Owner.COPY, State.CATCHING_UP),
    State.CATCHING_UP: (Owner.COPY, State.WANNA_SYNC),
    State.WANNA_SYNC: (Owner.WORKER, State.DO_SYNC),
    State.DO_SYNC: (Owner.COPY, State.OK),
}


@dataclass(frozen=True, slots=True)
class MergeState:
    """A parsed `merge_state`; `tick` belongs to wanna-sync and do-sync."""

    state: State
    tick: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> MergeState:
        """Read the contract's text."""
        if not text:
            return cls(State.NONE)
        if is_in_sync(text):
            return cls(State.OK)
        word, colon, tick = text.partition(":")
        try:
            return cls(State(word), int(tick) if colon else None)
        except ValueError:
            raise StateError(f'table state "{text}" is unknown') from None

    def __str__(self) -> str:
        return self.state.value if self.tick is None else f"{self.state.value}:{self.tick}"

    @property
    def owner(self) -> Owner:
        """Who acts next; an ok table is the worker's."""
        return _NEXT[self.state][0] if self.state in _NEXT else Owner.WORKER


def answer_hand_over(state: MergeState, position: int) -> MergeState:
    """Return what the worker at tick `position` answers a copy that asks for the hand-over: the
    tick at which it takes the table over, or the same state where it has not come so far."""
    if state.state is State.WANNA_SYNC and state.tick is not None and position >= state.tick:
        return MergeState(State.DO_SYNC, position)
    return state


def must_wait(state: MergeState, position: int) -> bool:
    """Must the worker wait? The copy replays up to the agreed tick, and the worker must not pass it
    meanwhile."""
    return state.state is State.DO_SYNC and state.tick is not None and position >= state.tick


def snapshot_is_past(copied: Snapshot, tick: Snapshot) -> bool:
    """Can no event after `tick` be part of the copy any more?"""
    return tick.xmax >= copied.xmax and not any(copied.contains(x) for x in tick.xip)
