"""The options of the source, read and checked. Pure.

Names are those that users of Spark's Kafka and JDBC sources know. An option that is not known is
an error: a misspelt `startingOffsets` must not read from somewhere else.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, overload

from vedur.db.conninfo import parse, with_params
from vedur.errors import UsageError
from vedur.names import fqname

T = TypeVar("T")

#: A tick, or one of the two words.
Offset = int | Literal["earliest", "latest"]

Use = Literal["both", "batch", "stream"]

DEFAULT_PARTITIONS = 8


@dataclass(frozen=True)
class Option:
    """One option as the manual lists it."""

    name: str
    meaning: str
    default: str = ""
    also: tuple[str, ...] = ()
    use: Use = "both"


OPTIONS = (
    Option(
        "url",
        "connect string: `host=... dbname=...`, `postgresql://...` or `jdbc:postgresql://...`",
        "required",
        also=("conninfo",),
    ),
    Option("user", "login, if the connect string does not say it"),
    Option("password", "its password; a `.pgpass` file or `service=` keeps it out of the program"),
    Option("subscribe", "name of the queue", "required", also=("queue",)),
    Option(
        "table",
        "only changes of this table (`schema.name`), its columns decoded",
        "all events, not decoded",
        also=("dbtable",),
    ),
    Option("columnPrefix", "put before the names of the table's columns", "nothing"),
    Option(
        "startingOffsets",
        "`earliest`, `latest` or a tick: events after it are read",
        "`earliest` for a batch, `latest` for a stream",
    ),
    Option("endingOffsets", "`latest` or a tick: the last that is read", "`latest`", use="batch"),
    Option(
        "consumerName",
        "consumer of the queue that keeps unread events from being rotated away",
        "none",
        use="stream",
    ),
    Option(
        "maxEventsPerTrigger",
        "about how many events a micro-batch may have; a tick is never cut",
        "no limit",
        also=("maxOffsetsPerTrigger",),
        use="stream",
    ),
    Option(
        "numPartitions",
        "most tasks, and so most connections, that read at the same time",
        str(DEFAULT_PARTITIONS),
    ),
    Option(
        "failOnDataLoss",
        "`true`: stop when events were rotated away unread; `false`: go on with what is there",
        "`true`",
    ),
)

_NAMES = {n.lower(): o for o in OPTIONS for n in (o.name, *o.also)}

#: Spark adds such options without meaning us.
_IGNORED = ("__", "spark.")


@dataclass(frozen=True)
class SourceOptions:
    """What a reader needs. Holds the connect string: never print it."""

    connstr: str = field(repr=False)
    queue: str
    table: str | None = None
    prefix: str = ""
    start: Offset | None = None
    end: Offset = "latest"
    consumer: str | None = None
    max_events: int | None = None
    partitions: int = DEFAULT_PARTITIONS
    fail_on_loss: bool = True


def read_options(given: Mapping[str, str], use: Use) -> SourceOptions:
    """Check the options; UsageError says which is wrong and how it should be.

    Spark asks for the schema before it says whether the query is a batch or a stream: "both".
    """
    values = _known(given, use)
    url = values.get("url")
    queue = values.get("subscribe")
    if not url:
        raise UsageError('option "url" is missing: give the connect string of the database')
    if not queue:
        raise UsageError('option "subscribe" is missing: give the name of the queue')
    table = values.get("table")
    if "columnPrefix" in values and not table:
        raise UsageError('option "columnPrefix" needs "table": only then there are columns to name')
    return SourceOptions(
        connstr=_connstr(url, values.get("user"), values.get("password")),
        queue=queue,
        table=fqname(table) if table else None,
        prefix=values.get("columnPrefix", ""),
        start=_offset("startingOffsets", values.get("startingOffsets"), None),
        end=_end(values.get("endingOffsets")),
        consumer=values.get("consumerName") or None,
        max_events=_number("maxEventsPerTrigger", values.get("maxEventsPerTrigger"), None),
        partitions=_number("numPartitions", values.get("numPartitions"), DEFAULT_PARTITIONS),
        fail_on_loss=_flag("failOnDataLoss", values.get("failOnDataLoss"), True),
    )


def _known(given: Mapping[str, str], use: Use) -> dict[str, str]:
    values: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for key, value in given.items():
        option = _NAMES.get(key.lower())
        if option is None:
            if key.lower() == "path" or key.lower().startswith(_IGNORED):
                continue
            raise UsageError(_unknown(key))
        if "both" not in (use, option.use) and option.use != use:
            raise UsageError(
                f'option "{key}" is for a {_KINDS[option.use]}: leave it out of a {_KINDS[use]}'
            )
        if option.name in values:
            raise UsageError(f'options "{spelt[option.name]}" and "{key}" mean the same: give one')
        values[option.name], spelt[option.name] = value, key
    return values


_KINDS = {"batch": "batch (spark.read)", "stream": "stream (spark.readStream)"}


def _unknown(key: str) -> str:
    known = {n: o.name if n == o.name.lower() else n for n, o in _NAMES.items()}
    near = difflib.get_close_matches(key.lower(), known, 1)
    names = ", ".join(o.name for o in OPTIONS)
    advice = f'did you mean "{known[near[0]]}"?' if near else f"known are {names}"
    return f'option "{key}" is not known: {advice}'


def _connstr(url: str, user: str | None, password: str | None) -> str:
    text = url.removeprefix("jdbc:") if url.startswith("jdbc:postgresql:") else url
    parse(text)
    given = {k: v for k, v in (("user", user), ("password", password)) if v is not None}
    return with_params(text, **given) if given else text


def _offset(name: str, text: str | None, default: Offset | None) -> Offset | None:
    if text is None:
        return default
    word = text.strip()
    if word in ("earliest", "latest"):
        return word  # type: ignore[return-value]
    try:
        value = json.loads(word)
        tick = value["tick"] if isinstance(value, dict) else value
        if isinstance(tick, int) and not isinstance(tick, bool) and tick >= 0:
            return tick
    except (ValueError, KeyError):
        pass
    raise UsageError(f'option "{name}" is "{text}": write earliest, latest or the number of a tick')


def _end(text: str | None) -> Offset:
    value = _offset("endingOffsets", text, "latest")
    if value is None or value == "earliest":
        raise UsageError('option "endingOffsets" is "earliest": write latest or a tick')
    return value


@overload
def _number(name: str, text: str | None, default: int) -> int: ...
@overload
def _number(name: str, text: str | None, default: None) -> int | None: ...
def _number(name: str, text: str | None, default: int | None) -> int | None:
    return _value(name, text, default, _positive, "a whole number of 1 or more")


def _flag(name: str, text: str | None, default: bool) -> bool:
    words = {"true": True, "false": False}
    found = _value(name, text, default, lambda t: words.get(t.strip().lower()), "true or false")
    return bool(found)


def _positive(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isdecimal() and int(word) > 0 else None


def _value(
    name: str, text: str | None, default: T, read: Callable[[str], T | None], wanted: str
) -> T:
    if text is None:
        return default
    value = read(text)
    if value is None:
        raise UsageError(f'option "{name}" is "{text}": write {wanted}')
    return value
