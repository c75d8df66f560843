"""The handlers that need no function over rows: names, arguments and scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from vedur.errors import StateError, UsageError
from vedur.handlers.api import NO_COLUMN, Argument, ColumnSet, Handler, Scope, switch
from vedur.handlers.dispatch import PRESETS, Dispatch
from vedur.handlers.function import ApplyFunction, MultiMaster
from vedur.handlers.obfuscate import Obfuscate
from vedur.handlers.splitter import QueueSplitter
from vedur.handlers.transform import Transform
from vedur.names import parse_name, quote_ident

if TYPE_CHECKING:
    import pyarrow as pa

#: Upstream's name for plain replay.
DEFAULT_HANDLER = "londiste"

_IGNORE_TRUNCATE = switch("ignore_truncate", "1: a TRUNCATE on the root leaves the rows here")
_ENCODING = Argument(
    "encoding",
    "utf8: bytes of a root without an encoding that are not UTF-8 become U+FFFD, one each",
    ("utf8", "utf-8", "UTF8", "UTF-8"),
)
#: Any text may hold such bytes.
_ALL_COLUMNS = ColumnSet(all_but=True)
_KEPT_BY_TRUNCATE = (
    "it ignores TRUNCATE, so rows that are here and not on the provider may be meant to be here"
)


def _operations(handler: Handler, wanted: str = "IUD") -> str:
    return wanted if handler.is_on("ignore_truncate") else f"{wanted}R"


class Londiste(Handler):
    """Plain replay, with or without TRUNCATE."""

    name = DEFAULT_HANDLER
    summary = "Default handler, applies the net change of each row."
    arguments: ClassVar[tuple[Argument, ...]] = (_IGNORE_TRUNCATE, _ENCODING)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Leave truncates out, and have text mended, where that is asked for."""
        kept = _KEPT_BY_TRUNCATE if self.is_on("ignore_truncate") else ""
        mends = self.changes_rows()
        rewrites = _ALL_COLUMNS if mends else NO_COLUMN
        return Scope(
            operations=_operations(self),
            rewrites=rewrites,
            mends=mends,
            by_column=mends,
            unrepairable=kept,
        )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave rows as they are: what reads them has mended them."""
        return batch

    def changes_rows(self) -> bool:
        """Does the handler have `encoding`? Without it rows stay as they are."""
        return bool(self.given.get("encoding"))


class Bulk(Handler):
    """Upstream's loader for whole batches, which replay here always is."""

    name = "bulk"
    summary = "As the default: batches are always loaded whole here."
    arguments = (
        Argument("method", "how upstream loads; the rows are the same here", ("0", "1", "2"), "0"),
    )


class BulkDirect(Londiste):
    """The presets of upstream's dispatch that go into the table itself."""

    name = "bulk_direct"
    summary = "As the default, for some kinds of changes only if asked for."
    arguments = (
        *Bulk.arguments,
        _IGNORE_TRUNCATE,
        Argument("table_mode", "the table itself, not partitions of it", ("direct",), "direct"),
        Argument("load_mode", "how upstream loads; as method", ("bulk", "direct"), "bulk"),
        Argument("row_mode", "changes are applied as what they are", ("plain",), "plain"),
        Argument("event_types", "the changes to apply, of I, U and D", default="I,U,D"),
    )

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        words = [w.strip().upper() for w in (self.argument("event_types") or "").split(",")]
        if not words or not set(words) <= set("IUD"):
            raise UsageError(
                f'argument "event_types" is a list of I, U and D, not "{given["event_types"]}"'
            )
        self.wanted = "".join(op for op in "IUD" if op in words)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Leave out the kinds of changes that were not asked for."""
        if self.wanted == "IUD":
            return super().scope(facts, names)
        why = f"it applies only {', '.join(self.wanted)} of the changes: the rows are a history"
        return Scope(operations=_operations(self, self.wanted), uncomparable=why)


class Direct(BulkDirect):
    """The same under upstream's other name."""

    name = "direct"


class Nop(Handler):
    """A table that is left alone."""

    name = "nop"
    summary = "Leaves the table alone: nothing is copied and nothing applied."

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return `expect_sync`: there is nothing to copy."""
        return ("expect_sync",)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return a scope in which nothing comes."""
        return Scope(applies=False, uncomparable="it leaves the table alone")


class VirtualTable(Handler):
    """A table that is here in name only."""

    name = "vtable"
    summary = "Registers the table without having it: a branch passes its events on."
    needs_table = False

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return `virtual_table`: there is no table to put triggers on."""
        return ("virtual_table",)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return a scope in which nothing comes, and nothing need be there."""
        return Scope(applies=False, uncomparable="it has no rows here")


class FakeLocal(VirtualTable):
    """The same under upstream's older name."""

    name = "fake_local"


class QueueTable(Nop):
    """A table of the root that is the entrance of its queue."""

    name = "qtable"
    summary = "On the root: inserted rows become events and are not stored; vtable elsewhere."
    root_only = True

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Return the words by which the trigger fires before the insert and keeps the row out."""
        return ("tgflags=BI", "SKIP", "expect_sync")


class Shard(Handler):
    """The rows of one shard, by the hash of a column."""

    name = "shard"
    summary = "The rows whose hash of a key column is this node's share; without a hash: shard 0."
    depends_on = "the shard of this node (shard_info_sql) is"
    arguments = (
        Argument("key", "the column that is hashed"),
        Argument("hash_key", "the same; if both are given, this one counts"),
        Argument("hash_expr", "an expression over the columns instead of the function of the ini"),
        switch("disable_replay", "1: nothing is copied or applied, a branch passes events on"),
        Argument(
            "pass_on",
            "needed on a branch: all, nodes below get the events of all shards; own, only those of "
            "this one, for which the key must have the columns that are hashed. In either case "
            "nodes below must have this handler, too",
            ("all", "own"),
        ),
        _IGNORE_TRUNCATE,
        Argument(
            "shard_nr",
            "the shard of this table here, from 0 up; with shard_count, instead of what "
            "shard_info_sql of the ini says",
        ),
        Argument("shard_count", "how many shards there are; any number, not only powers of two"),
    )
    ini_keys = ("shard_hash_func", "shard_info_sql")

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        self.key = self.argument("hash_key") or self.argument("key") or ""
        if not self.key and not self.argument("hash_expr"):
            raise UsageError(f'handler "{self.name}" needs a column to hash: give key=COLUMN')
        self.place = self._read_place()

    def _read_place(self) -> tuple[int, int] | None:
        """Return number and count of the shard that arguments name; None where the node is asked
        for them."""
        texts = [self.argument(name) for name in ("shard_nr", "shard_count")]
        if texts == [None, None]:
            return None
        if None in texts:
            raise UsageError('arguments "shard_nr" and "shard_count" must be given together')
        number, count = (_read_number(text or "") for text in texts)
        if number is None or not count or number >= count:
            raise UsageError(
                f'there is no shard "{texts[0]}" of "{texts[1]}": shard_count is a number from 1 '
                f"to {MAX_SHARDS}, and shard_nr one from 0 up that is below it"
            )
        return number, count

    def _expression(self, names: Mapping[str, str]) -> str:
        """Return the hash of a row, in names of this node. Without one (NULL) a row would be of no
        shard, lost to all, so it counts as of hash 0."""
        given = self.argument("hash_expr")
        if given:
            return f"coalesce(({given}), 0)"
        if names and self.key not in names:
            raise UsageError(f'the column list leaves out "{self.key}", which is hashed')
        function = parse_name(self.options.get("shard_hash_func") or HASH_FUNCTION)
        return f"coalesce({function.quoted}({quote_ident(names.get(self.key, self.key))}), 0)"

    def trigger_words(self, names: Mapping[str, str]) -> Sequence[str]:
        """Let events tell the hash in ev_extra3, as nodes of upstream's need it."""
        words = [f"ev_extra3='hash='||{self._expression(names)}"]
        return [*words, "expect_sync"] if self.is_on("disable_replay") else words

    def facts_query(self) -> str | None:
        """Return the query which shard of how many this node is; None where arguments say it."""
        if self.place is not None:
            return None
        return self.options.get("shard_info_sql") or SHARD_INFO

    def root_problem(self) -> str:
        """Return why this cannot be on the root, which has all rows, whatever its table is called a
        shard of; empty where it can."""
        if self.argument("pass_on") == "own":
            return "the root passes all events on: give pass_on=own to a branch"
        if self.place is None:
            return ""
        return "the root has the rows of all shards: give shard_nr and shard_count to the others"

    def branch_problem(self) -> str:
        """Return why this cannot be on a branch as it is: upstream's branch passes on its own share
        only, and nodes below may rely on that. Empty where `pass_on` says what is meant."""
        if self.argument("pass_on"):
            return ""
        return (
            "one of Londiste's passes on the events of its own shard, and one of Vedur's those of "
            "all shards, so nodes below without this handler would get rows of other shards: give "
            "it to them, too, and say so here with --handler-arg=pass_on=all, or with pass_on=own "
            "for a branch that passes on the events of its own shard only"
        )

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Select this node's share; a row whose hash changes comes or goes with the change."""
        own, leaves = self.argument("pass_on") == "own", self.is_on("disable_replay")
        if own and any(name != here for name, here in names.items()):
            raise UsageError(
                "pass_on=own cannot be together with other names of columns (--columns): nodes "
                "below would not know which rows are meant"
            )
        condition = None
        if own or not leaves:
            number, count = self.place or read_shard(facts)
            condition = f"{shard_of(self._expression(names), count)} = {number}"
        passes_on = condition if own else None
        if leaves:
            why = "it is not replayed here (disable_replay)"
            return Scope(applies=False, passes_on=passes_on, uncomparable=why)
        kept = _KEPT_BY_TRUNCATE if self.is_on("ignore_truncate") else ""
        return Scope(condition, _operations(self), passes_on=passes_on, unrepairable=kept)


class Part(Shard):
    """The same under upstream's older name."""

    name = "part"


#: What hashes and what tells the shard where the ini says nothing, as upstream has it.
HASH_FUNCTION = "partconf.get_hash_raw"
SHARD_INFO = "select shard_nr, shard_mask, shard_count from partconf.conf"
#: More would make the remainder of an integer overflow, and nobody has so many.
MAX_SHARDS = 1_000_000


def shard_of(expression: str, count: int) -> str:
    """Return the shard of a hash, as SQL. Hashes may be negative, and so are remainders of them;
    for powers of two it is upstream's mask."""
    if count & (count - 1) == 0:
        return f"({expression} & {count - 1})"
    return f"(({expression} % {count} + {count}) % {count})"


def _read_number(text: str) -> int | None:
    """Return a number up to `MAX_SHARDS`; None for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_SHARDS))):
        return None
    return int(text) if int(text) <= MAX_SHARDS else None


def read_shard(facts: tuple[Any, ...] | None) -> tuple[int, int]:
    """Return number and count of this node's shard; raises `StateError` for what makes no sense."""
    try:
        number, mask, count = (int(value) for value in (facts or ())[:3])
    except (TypeError, ValueError):
        raise StateError(
            "shard_info_sql must give one row: number of the shard, mask, number of shards"
        ) from None
    if mask + 1 != count or count & mask or not 0 <= number < count:
        raise StateError(
            f"shard_info_sql says shard {number}, mask {mask}, {count} shards: the number of "
            "shards must be a power of two, the mask one less, and the shard below it"
        )
    return number, count


HANDLERS: tuple[type[Handler], ...] = (
    Londiste,
    Bulk,
    BulkDirect,
    Direct,
    Nop,
    VirtualTable,
    FakeLocal,
    QueueTable,
    QueueSplitter,
    Shard,
    Part,
    Obfuscate,
    Transform,
    ApplyFunction,
    MultiMaster,
    Dispatch,
    *PRESETS,
)
