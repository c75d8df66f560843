"""What is checked: scenarios of takeover.pml that must hold, mistakes that must be found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """One configuration of the model; `flags` are passed as -D, `short` ones in tests."""

    name: str
    says: str
    flags: tuple[str, ...]
    short: tuple[str, ...] | None = None

    def chosen(self, short: bool) -> tuple[str, ...]:
        """The flags of a short or a whole check."""
        return self.short if short and self.short is not None else self.flags


@dataclass(frozen=True)
class Mistake:
    """A planted mistake: the flag, the scenario in which it shows, and what it is. `whole`: only
    the whole scenario shows it, as somebody has to be killed."""

    flag: str
    scenario: str
    says: str
    whole: bool = False


SCENARIOS = (
    Scenario(
        "live",
        "takeover of a root that works, with --abort, killed and run again",
        ("LIVE",),
        ("LIVE", "CRASHES=0"),
    ),
    Scenario("back", "takeover, and takeover back", ("BACK",), ("BACK", "CRASHES=0")),
    Scenario("two", "two takeovers and an --abort at the same time", ("TWO",)),
    Scenario(
        "dead",
        "failover, and resurrect of the old root",
        ("DEAD", "LOSSES=0"),
        ("DEAD", "LOSSES=0", "CRASHES=0"),
    ),
    Scenario(
        "late",
        "the same with a writer whose snapshot is old",
        ("DEAD", "LATE", "LOSSES=0"),
        ("DEAD", "LATE", "LOSSES=0", "CRASHES=0"),
    ),
    Scenario(
        "begun",
        "a takeover that was begun, and a failover to the same node",
        ("BEGUN",),
        ("BEGUN", "CRASHES=0"),
    ),
    Scenario("rivals", "two failovers to different nodes at the same time", ("RIVALS", "LOSSES=2")),
)

MISTAKES = (
    Mistake("NO_EPOCH", "dead", "nobody compares reigns, only numbers of ticks"),
    Mistake("NO_WAIT", "live", "the last tick does not wait for old snapshots"),
    Mistake("NO_WAIT", "late", "resurrect does not wait for old snapshots"),
    Mistake("PUBLISH_APART", "live", "a branch publishes in a second transaction"),
    Mistake("POSITION_APART", "live", "the position is stored in a second transaction"),
    Mistake("NO_RECHECK", "dead", "a batch does not look again at provider and role"),
    Mistake("ROTATE_BLIND", "live", "rotation does not look at consumers"),
    Mistake("ROTATE_LOCAL", "dead", "rotation of a branch ignores the global watermark"),
    Mistake("WATERMARK_AHEAD", "live", "the new root keeps for the old one from the last tick on"),
    Mistake("NO_FOLLOW", "live", "the new root is promoted before it has the last tick"),
    Mistake("NO_BAR", "live", "--abort does not bar the epoch before it opens the old root"),
    Mistake("NO_PLAN", "two", "steps do not compare the epoch that they were prepared for"),
    Mistake("SUBSCRIBE_LATE", "dead", "survivors are subscribed after the promotion"),
    Mistake("GRAVESTONE_LATE", "dead", "the old root's gravestone is set after the promotion"),
    Mistake("NO_CATCH_UP", "dead", "the survivor with most events is not asked"),
    Mistake("NO_FENCE", "dead", "survivors go on reading from a root that was called dead"),
    Mistake("NO_LOCK", "rivals", "a failover locks the new root only"),
    Mistake("NO_LOOK", "rivals", "a failover does not look whether it still has its locks"),
    Mistake(
        "KEEP_APART", "dead", "resurrect keeps lost events in a second transaction", whole=True
    ),
    Mistake("BY_NAME", "begun", "a takeover is finished by the name of the root, not the epoch"),
    Mistake("ABORT_BLIND", "begun", "--abort asks only whether its own epoch reigns"),
    Mistake("NO_REPAIR", "dead", "resurrect does not repair the tables"),
)
