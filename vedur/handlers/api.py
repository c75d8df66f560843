"""What a handler is: the interface for those of Vedur and for users' own.

A handler changes what a table of the set is on one node. `add-table --handler=NAME` stores its name
and arguments with the table; from then on first copy, replay, compare, repair and check ask it. A
class is found by the entry point group `vedur.handlers`, or as a member of `HANDLERS` of a module
that the ini names in `handler_modules`.

Declare first. Most handlers need no code that looks at rows: `scope` says which rows, operations
and truncates come here, and everything that moves or compares rows goes by it. `rows` is for what
cannot be declared: it gets many rows at a time, as an Arrow record batch, in tasks of Spark.
`statements` is for what is no table at all: it is given event by event, and says what to run.

| member | called where | when, how often |
|---|---|---|
| `arguments` | driver | whenever a stored handler is read: unknown or bad arguments are refused |
| `__init__` | driver, tasks | once a process for each table, also in those that run `rows` |
| `trigger_words` | `add-table`, `change-handler` | once on each node, in its transaction |
| `facts_query` | driver | its answer is read from the node's database in each round of a worker |
| `scope` | driver | after that; cheap and pure, its answer is kept |
| `root_problem` | driver | on the root, in `add-table` |
| `branch_problem` | driver | on a branch, in `add-table` and in each round of its worker |
| `publishes` | driver | with `branch_problem`, and with `scope` |
| `check` | driver | in `add-table`, before a first copy is planned, before changes are staged |
| `modules`, `settings` | driver | as `scope`, for handlers with `rows` |
| `check_columns` | tasks | once for each set of columns that changes have in a task |
| `rows` | tasks | for blocks of a first copy, of changes, and of rows that are compared |
| `statements` | driver | for each event, in order, in the transaction of the batch |

The driver is the process of the command or the worker; tasks run in Python processes of Spark, on
any machine, and may run twice for the same rows. So `rows` depends on its batch and on the
handler's arguments alone: no clock, no random numbers, no database, no state from call to call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vedur.change.event import Event
from vedur.errors import UsageError
from vedur.tables.event_function import Statement
from vedur.tables.module_code import ModuleSource, code_of
from vedur.tables.row_function import ColumnSet, TableFacts
from vedur.tables.target import Partitions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ALL_OPERATIONS",
    "Argument",
    "ColumnSet",
    "Event",
    "Handler",
    "Partitions",
    "Scope",
    "Statement",
    "TableFacts",
    "switch",
]

#: What a switch may be set to.
_SWITCH = {"1": True, "true": True, "0": False, "false": False}
#: What a handler without `rows` rewrites.
NO_COLUMN = ColumnSet()
#: All that a queue tells of rows: insert, update, delete, truncate.
ALL_OPERATIONS = "IUDR"


@dataclass(frozen=True)
class Argument:
    """An argument of a handler, given with `--handler-arg NAME=VALUE`; all values are text.

    `choices` are the values that are allowed, none for any text. `default` is what `argument` gives
    where the argument is not there; a `required` one must be there.
    """

    name: str
    meaning: str
    choices: tuple[str, ...] = ()
    default: str | None = None
    required: bool = False

    def check(self, value: str) -> None:
        """Raise UsageError for a value that is not allowed."""
        if self.choices and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise UsageError(f'argument "{self.name}" is one of {allowed}, not "{value}"')


def switch(name: str, meaning: str) -> Argument:
    """Make an argument that is 0 or 1, by default 0."""
    return Argument(name, meaning, tuple(_SWITCH), "0")


@dataclass(frozen=True)
class Scope:
    """What comes to the table here.

    `condition` selects rows, in names of this node; it is added to the table's own (`--where`) and
    must depend on the row alone. `operations` are the events that are applied: I, U, D, and R for
    TRUNCATE. `applies` False: nothing is copied and nothing replayed. `rewrites` are the columns,
    by the provider's names, whose values `rows` changes or leaves out, None, or nothing said, where
    only the function knows; `filters`: `rows` may leave rows out; `mends`: bytes that are not UTF-8
    are replaced before `rows` sees them, instead of being an error; `by_column`: what `rows` makes
    of a column depends on that column alone, so that changes may be shown to it without those that
    it does not rewrite. `partitions` is where rows go instead of the table itself: to tables by
    time. `passes_on`: a branch passes on only events of rows for which this condition holds; it
    looks at columns of the key alone, and nodes below must have it as their own. `uncomparable`
    says why it cannot be told which rows should be here, `unrepairable` why rows that the provider
    lacks may be right.
    """

    condition: str | None = None
    operations: str = ALL_OPERATIONS
    applies: bool = True
    rewrites: ColumnSet | None = NO_COLUMN
    filters: bool = False
    mends: bool = False
    by_column: bool = False
    partitions: Partitions | None = None
    passes_on: str | None = None
    uncomparable: str = ""
    unrepairable: str = ""


class Handler:
    """Base class: a table as it is. Subclass it, and set `name`, `summary` and `arguments`."""

    #: What `--handler` and the stored attribute call it.
    name: ClassVar[str] = ""
    #: One sentence for `show-handlers`.
    summary: ClassVar[str] = ""
    arguments: ClassVar[tuple[Argument, ...]] = ()
    #: The handler that this one is, with other defaults; the reference tells its arguments there.
    preset_of: ClassVar[str] = ""
    #: False: it can be registered where there is no such table.
    needs_table: ClassVar[bool] = True
    #: True: it is about triggers, and for the root only.
    root_only: ClassVar[bool] = False
    #: True: tables of several sets may come together in one here, it decides between their rows.
    joins: ClassVar[bool] = False
    #: What rows here depend on beside the provider's, for the message that it has changed.
    depends_on: ClassVar[str] = "its settings are"
    #: Keys of the ini whose values are in `options`.
    ini_keys: ClassVar[tuple[str, ...]] = ()

    #: The Python source of `modules` and of what they import of their own, on the driver.
    sources: tuple[ModuleSource, ...] = ()

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        """Take the table's name in the set, the arguments that were given (already checked against
        `arguments`) and values of the ini. Raise UsageError for what cannot be meant."""
        self.table = table
        self.given = dict(given)
        self.options = dict(options)

    def argument(self, name: str) -> str | None:
        """Return an argument, or its default."""
        declared = next(a for a in self.arguments if a.name == name)
        return self.given.get(name, declared.default)

    def is_on(self, name: str) -> bool:
        """Return an argument that was declared with `switch`."""
        return _SWITCH[self.argument(name) or "0"]

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return words for `londiste.local_add_table`: trigger arguments such as `ev_extra3=...`,
        and magic words such as `expect_sync`. `names` are names here by the provider's names."""
        return ()

    def facts_query(self) -> str | None:
        """Return a statement for the node's database whose only row `scope` needs; None for none.

        It is not asked on the root, which has all rows.
        """
        return None

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return what comes here; `facts` is the row of `facts_query`. Raise StateError for facts
        that make no sense."""
        return Scope()

    def check(self, table: TableFacts) -> None:
        """Raise StateError where this handler cannot serve such a table, for instance because
        `rows` would make two keys equal."""

    def root_problem(self) -> str:
        """Return why this cannot be on the root, where users write the rows; empty where it can."""
        if not self.changes_rows():
            return ""
        return "it is for nodes that copy a table: on the root rows are written by its users"

    def branch_problem(self) -> str:
        """Return why this cannot be on a branch, which passes all events on as they are, or as
        `publishes` says; empty where it can."""
        if not self.changes_rows() or self.publishes():
            return ""
        return (
            "a branch passes all events on as they are, so its queue would hold the rows as they "
            "were before; give it to the leaves below"
        )

    def publishes(self) -> bool:
        """Say whether a branch passes on what `rows` makes of events, and nothing else of them.

        It is for `rows` that keep every row and name what they rewrite (`Scope.rewrites`, no
        `Scope.filters`). On a branch `rows` is then called in the tasks that read the provider, for
        each event of the table before anything of it is written there: for the events that go on,
        and once more for the changes of the branch's own table. Nodes below get and copy rows as
        they are then, and must not have a handler that rewrites them again. What the rows are made
        of is told to them as a fingerprint of `settings`, so that rows made by other rules are
        never mixed.
        """
        return False

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise StateError where a change with a whole row of these columns cannot be served, for
        instance because a column that is rewritten has got another name."""

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as they should be here. Overriding this makes `rows` be called.

        Columns are text (`pa.string()`), values as PostgreSQL writes them, null for NULL, under the
        provider's names; the last column is `vedur_row`, which numbers the rows. Columns may be
        changed, added and left out, also of a batch with no rows; what they are may depend on the
        names alone. Rows stay in order; a handler whose scope says `filters` may leave some out,
        and then `vedur_row` must be among the columns of the answer.

        Deletes come with the columns of the key only, and only if `rewrites` names one of these: a
        column of the key that `rewrites` does not name must stay as it is. Where the scope says
        `by_column` they may come among other rows, and all come without the columns that `rewrites`
        does not name.
        """
        raise NotImplementedError

    def statements(self, event: Event, tick: int | None, dest: str) -> Sequence[Statement]:
        """Return what to run on the node for an event of the table, instead of applying it.
        Overriding this makes it be called, for inserts, updates and deletes; a TRUNCATE empties
        the table, and a first copy brings rows as they are.

        A statement is a text with `%s` for values, and the values. `event` has the fields of the
        queue, `ev_time` too, as text; `tick` is the one that the batch ends with, `dest` the name
        of the table here. They run in the order of events, in the transaction that stores the
        position, as a replica: so exactly once. What the server refuses is treated as for other
        tables (`on_error`); this may be called again for the same event then.
        """
        raise NotImplementedError

    def settings(self) -> str:
        """Return what the rows that `rows` makes depend on, as text that is the same every time:
        arguments, values of the ini, and the code of `sources` but for comments.

        A fingerprint of it is stored with the table: where it changes, rows that are here do not
        fit those that come, and the table stops until it is copied anew.
        """
        values = sorted(self.given.items()), sorted(self.options.items())
        return repr((*values, code_of(self.sources)) if self.sources else values)

    @classmethod
    def modules(cls, given: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the users' modules whose code makes the rows, by the arguments: that
        of the class. What they import of their own is added."""
        return () if cls.__module__.partition(".")[0] == "vedur" else (cls.__module__,)

    def changes_rows(self) -> bool:
        """Is `rows` to be called? Where the class has it, unless arguments decide."""
        return type(self).rows is not Handler.rows
