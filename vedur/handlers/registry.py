"""Handlers that tables are registered with: find them, check their arguments, resolve them.

A node of Londiste may have stored any handler with a table (`shard`, `obfuscate`, `dispatch`, or
one of the operator's own): it decides which rows come and what becomes of their values. Rows that
are moved without it are wrong at best, and in the open at worst. So a table whose handler cannot be
resolved stops everything that would move rows.

Handlers are found once for each job of a process: those of Vedur, those of installed packages
(entry points `vedur.handlers`), and those of the modules that the ini names (`handler_modules`).
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from vedur.change.attrs import (
    COLUMNS,
    COPY_CONDITION,
    HANDLER,
    HANDLER_MARK,
    decode_attrs,
    encode_attrs,
)
from vedur.config import LondisteSettings
from vedur.errors import (
    ConfigError,
    InternalError,
    StateError,
    UsageError,
    VedurError,
    first_line,
)
from vedur.handlers.adapter import adapt
from vedur.handlers.api import NO_COLUMN, Handler, Scope
from vedur.handlers.builtin import DEFAULT_HANDLER, HANDLERS
from vedur.tables.event_function import EventFunction
from vedur.tables.filter import Columns, columns_of, parse_columns
from vedur.tables.module_code import ModuleSource, changed_module, read_sources, using
from vedur.tables.row_function import RowFunction
from vedur.threads import current_job

GROUP = "vedur.handlers"
#: What the rules begin with by which rows are masked; no condition over columns does.
MASKED_BY = "masked by "

_Values = tuple[tuple[str, str], ...]
#: The source of modules, as it was when they were loaded, by their names.
_Sources = dict[tuple[str, ...], tuple[ModuleSource, ...]]

_OWN_STATEMENTS = (
    "what its statements make of events cannot be computed, so nobody can tell which rows should "
    "be here"
)

REMEDY = (
    "keep Londiste's own worker on this node, or remove-table it here and, if plain rows are "
    "wanted, add-table it again without a handler"
)


class RegisteredTable(Protocol):
    """What must be known of a table to tell its handler; `catalog.TableInfo` has it."""

    @property
    def table_name(self) -> str: ...
    @property
    def table_attrs(self) -> str | None: ...
    @property
    def local(self) -> bool: ...
    @property
    def facts(self) -> tuple[Any, ...] | None: ...
    @property
    def facts_problem(self) -> str: ...


@dataclass(frozen=True)
class Handled:
    """A table's handler, and what it makes of the table; `rows` is None where rows stay, `calls`
    where changes are applied."""

    stored: str
    handler: Handler = field(compare=False)
    scope: Scope
    rows: RowFunction | None = None
    calls: EventFunction | None = None
    mark: str = ""  # of what the rows here depend on, where that is more than the provider's

    @property
    def publishes(self) -> bool:
        """Does a branch pass on what its function makes of rows?"""
        return self.rows is not None and self.handler.publishes()

    @property
    def mask(self) -> str:
        """By which rules it masks rows, as nodes below are told; empty where a branch does not pass
        on what it makes of them."""
        name = self.stored.partition("(")[0]
        return f"{MASKED_BY}{name} {self.mark}" if self.publishes else ""

    @property
    def plain(self) -> bool:
        """Is the table here what it would be without a handler?"""
        return self.scope == Scope() and self.rows is None and self.calls is None


class Registry:
    """The handlers that this process knows, and the values of the ini that they ask for."""

    def __init__(
        self,
        classes: Iterable[type[Handler]] = (),
        options: Mapping[str, str] | None = None,
        sources: _Sources | None = None,
    ) -> None:
        self.classes: dict[str, type[Handler]] = {}
        self.options = dict(options or {})
        self._sources = dict(sources or {})
        for cls in (*HANDLERS, *classes):
            self._add(cls)
        self.resolve = lru_cache(maxsize=4096)(self._resolve)

    def _add(self, cls: type[Handler]) -> None:
        known = self.classes.get(cls.name)
        if known is not None and known is not cls:
            raise ConfigError(
                f'handler "{cls.name}" is there twice: in module "{known.__module__}" and in '
                f'module "{cls.__module__}"'
            )
        self.classes[cls.name] = cls

    def find(self, name: str) -> type[Handler]:
        """Return the class of that name. Raises `UsageError` naming those that exist."""
        if name not in self.classes:
            known = ", ".join(sorted(self.classes))
            raise UsageError(f'unknown handler "{name}": there is {known}, see show-handlers')
        return self.classes[name]

    def make(self, name: str, table: str, given: Mapping[str, str | None]) -> Handler:
        """Make the handler of a table; raises `UsageError` for bad arguments."""
        cls = self.find(name)
        values = check_arguments(cls, given)
        options = {key: self.options[key] for key in cls.ini_keys if key in self.options}
        modules = cls.modules(values)
        sources = self._sources.get(modules)
        if sources is None:
            sources = read_sources(modules)
        with using(sources):
            handler = cls(table, values, options)
        self._sources[modules] = sources
        handler.sources = sources
        return handler

    def _resolve(
        self,
        stored: str,
        table: str,
        columns: str | None,
        facts: tuple[Any, ...] | None,
    ) -> Handled:
        name, given = parse_stored(stored)
        listed: Columns = parse_columns(columns) if columns else ()
        return self.handled(stored, self.make(name, table, given), facts, listed)

    def handled(
        self, stored: str, handler: Handler, facts: tuple[Any, ...] | None, listed: Columns = ()
    ) -> Handled:
        """Return what a handler makes of its table; `listed` are the columns of a column list."""
        if handler.facts_query() is not None and facts is None:
            raise StateError(
                f'handler "{stored}" of table "{handler.table}" has not been asked for its facts'
            )
        scope = handler.scope(facts, dict(listed))
        rows = self._row_function(stored, handler, scope)
        calls = _event_function(stored, handler, scope, listed)
        _require_publishable(stored, handler, scope)
        if calls is not None and not scope.uncomparable:
            scope = replace(scope, uncomparable=_OWN_STATEMENTS)
        told = [] if rows is None else [handler.settings()]
        if facts is not None and calls is None:
            # which rows are here, or passed on, depends on the answer
            told.append(scope.condition or scope.passes_on or "")
        mark = fingerprint("\n".join(told)) if told else ""
        return Handled(stored, handler, scope, rows, calls, mark)

    @staticmethod
    def _row_function(stored: str, handler: Handler, scope: Scope) -> RowFunction | None:
        if not handler.changes_rows():
            return None
        return RowFunction(
            *_named(stored, handler),
            # a class that says nothing of its columns may change any
            None if scope.rewrites is NO_COLUMN else scope.rewrites,
            scope.filters,
            scope.mends,
            scope.by_column,
        )


def _require_publishable(stored: str, handler: Handler, scope: Scope) -> None:
    """Raise where a branch could not pass on what a handler makes of rows, and it says that it
    does."""
    if not handler.changes_rows() or not handler.publishes():
        return
    unknown = scope.rewrites is None or scope.rewrites is NO_COLUMN
    if unknown or scope.filters or scope.partitions or scope.passes_on:
        raise UsageError(
            f'handler "{stored}" says that a branch passes on what it makes of rows (publishes): '
            "then its scope must say which columns it rewrites, and it can neither leave rows out "
            "nor spread them over partitions"
        )


def _event_function(
    stored: str, handler: Handler, scope: Scope, columns: Columns
) -> EventFunction | None:
    """Return the handler's `statements`, None where it has none; raises for what cannot hold
    beside them."""
    if type(handler).statements is Handler.statements or not scope.applies:
        return None
    if handler.changes_rows() or scope.condition or scope.partitions:
        raise UsageError(
            f'handler "{stored}" has statements for events, and cannot decide about rows as well'
        )
    if columns:
        raise UsageError(
            f'handler "{stored}" gets events as they are: the table cannot have a column list '
            "(--columns) beside it"
        )
    return EventFunction(*_named(stored, handler), not handler.needs_table)


def _named(
    stored: str, handler: Handler
) -> tuple[str, str, str, str, _Values, _Values, tuple[ModuleSource, ...]]:
    """Return by what a handler is made again elsewhere: the fields of a `NamedHandler`."""
    cls = type(handler)
    given, options = sorted(handler.given.items()), sorted(handler.options.items())
    where = cls.__module__, cls.__qualname__
    return stored, *where, handler.table, tuple(given), tuple(options), handler.sources


def fingerprint(text: str) -> str:
    """Return some digits by which a change of a text is noticed; they do not tell the text."""
    return hashlib.blake2s(text.encode(), digest_size=5, person=b"handler").hexdigest()


def check_arguments(cls: type[Handler], given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the arguments with text for values; raises `UsageError` for what is not declared."""
    declared = {argument.name: argument for argument in cls.arguments}
    bad = sorted(given.keys() - declared.keys())
    if bad:
        known = ", ".join(declared) or "none"
        raise UsageError(
            f'Invalid handler argument: {bad}; handler "{cls.name}" has these: {known}'
        )
    values = {key: value or "" for key, value in given.items()}
    for name, argument in declared.items():
        if name in values:
            argument.check(values[name])
        elif argument.required:
            raise UsageError(f'handler "{cls.name}" needs argument "{name}": {argument.meaning}')
    return values


def parse_stored(text: str) -> tuple[str, dict[str, str | None]]:
    """Read the stored form `name(key=value&key2=value2)`; Londiste takes commas, too."""
    name, bracket, rest = text.strip().partition("(")
    if bracket and not rest.endswith(")"):
        raise UsageError(f'handler "{text}" cannot be read: its bracket is not closed')
    arguments = rest.removesuffix(")").replace(",", "&")
    return name.strip() or DEFAULT_HANDLER, decode_attrs(arguments)


def handler_attr(name: str, args: Sequence[str]) -> str:
    """Return the stored form `name(args)`, arguments urlencoded; `name` alone without arguments."""
    cls = registry().find(name)
    values: dict[str, str | None] = {}
    for text in args:
        key, equals, value = text.partition("=")
        if key in values:
            raise UsageError(f'handler argument "{key}" is given twice')
        values[key] = value if equals else None
    check_arguments(cls, values)
    encoded = encode_attrs(values)
    return f"{name}({encoded})" if encoded else name


# -- handlers of this process -----------------------------------------------------------------

#: By job: the ini files of several workers in one process may ask for different ones.
_current: dict[str, Registry] = {}


def registry() -> Registry:
    """Return the handlers of this job; without `load_handlers` those that need no ini.

    Where the process has several jobs, somebody must have said which: rows of one must not pass
    through what the ini of another says.
    """
    job = current_job()
    if job not in _current:
        if job or _current:
            raise InternalError(f'BUG: handlers of job "{job}" are asked for, and not loaded')
        sources: _Sources = {}
        _current[job] = Registry(_installed(sources), sources=sources)
    return _current[job]


def forget_handlers(job: str) -> None:
    """Let go of the handlers of a job that has ended."""
    _current.pop(job, None)


def load_handlers(settings: LondisteSettings) -> Registry:
    """Read the handlers that an ini asks for, for all that follows in this job.

    Raises `ConfigError` that names the module, file or package that cannot be used.
    """
    loaded = _current[current_job()] = make_registry(settings)
    return loaded


def make_registry(settings: LondisteSettings) -> Registry:
    """Do the same, for whoever gets the answer."""
    sources: _Sources = {}
    classes = [*_installed(sources), *_of_modules(settings.handler_modules, sources)]
    options = {
        "shard_hash_func": settings.shard_hash_func,
        "shard_info_sql": settings.shard_info_sql,
        "obfuscator_key": settings.obfuscator_key,
    }
    if settings.obfuscator_map:
        options["obfuscator_map"] = read_map(settings.obfuscator_map)
    return Registry(classes, options, sources)


def _installed(sources: _Sources) -> list[type[Handler]]:
    return [_load_point(point, sources) for point in entry_points(group=GROUP)]


def _load_point(point: EntryPoint, sources: _Sources) -> type[Handler]:
    what = f'handler "{point.name}" of an installed package ({point.value})'
    try:
        with _reading(point.module, sources):
            found = point.load()
    except Exception as error:
        raise ConfigError(f"{what} cannot be loaded: {first_line(error)}") from error
    return _require_class(found, what)


@contextmanager
def _reading(module: str, sources: _Sources) -> Iterator[None]:
    """Have a module, when it is imported meanwhile, made of what its file has now."""
    sources[(module,)] = read_sources([module])
    with using(sources[(module,)]):
        yield


def _of_modules(names: Sequence[str], sources: _Sources) -> Iterator[type[Handler]]:
    for name in names:
        if name.startswith("londiste.handlers."):
            continue  # Londiste's own list in an ini that was its: what it has of them is built in
        module = _import(name, sources)
        classes = getattr(module, "HANDLERS", None) or ()
        theirs = getattr(module, "__londiste_handlers__", None) or ()
        if not classes and not theirs:
            raise ConfigError(
                f'handler module "{name}" (handler_modules) has no HANDLERS: list its classes there'
            )
        for cls in theirs:
            yield adapt(cls, f'"{cls!r}" in __londiste_handlers__ of module "{name}"')
        for cls in classes:
            yield _require_class(cls, f'"{cls!r}" in HANDLERS of module "{name}"')


def _import(name: str, sources: _Sources) -> ModuleType:
    try:
        with _reading(name, sources):
            return importlib.import_module(name)
    except Exception as error:
        raise ConfigError(
            f'handler module "{name}" (handler_modules) cannot be loaded: '
            f"{type(error).__name__}: {first_line(error)}"
        ) from error


def _require_class(found: object, what: str) -> type[Handler]:
    if isinstance(found, type) and issubclass(found, Handler) and found.name:
        return found
    raise ConfigError(f"{what} is no subclass of vedur.handlers.api.Handler with a name")


def read_map(path: str) -> str:
    """Read a file of rules, JSON or (where PyYAML is installed) YAML; returns it as JSON."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'obfuscator_map "{path}" cannot be read: {first_line(error)}') from error
    try:
        rules = json.loads(text)
    except ValueError as error:
        rules = _read_yaml(path, text, error)
    if not isinstance(rules, dict):
        raise ConfigError(f'obfuscator_map "{path}" has no rules: write table: column: rule')
    try:
        return json.dumps(rules)
    except (TypeError, ValueError) as error:
        raise ConfigError(f'obfuscator_map "{path}" holds {first_line(error)}') from error


def _read_yaml(path: str, text: str, why: ValueError) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f'obfuscator_map "{path}" is no JSON ({first_line(why)}); to use YAML, install PyYAML'
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f'obfuscator_map "{path}": {" ".join(str(error).split())}') from error


# -- handlers of tables -----------------------------------------------------------------------


def stored_handler(table: RegisteredTable) -> str:
    """Return the handler that is stored with a local table; empty where there is none."""
    if HANDLER not in (table.table_attrs or "") or not table.local:
        return ""  # every round of a worker asks this for every table
    return (decode_attrs(table.table_attrs).get(HANDLER) or "").strip()


def resolve(table: RegisteredTable) -> Handled | None:
    """Return what a table's handler makes of it, None where it has no handler.

    Raises `StateError` where that cannot be told: nothing may be moved then.
    """
    stored = stored_handler(table)
    if not stored:
        return None
    attrs = decode_attrs(table.table_attrs)
    problem = table.facts_problem
    if not problem:
        try:
            found = registry().resolve(stored, table.table_name, attrs.get(COLUMNS), table.facts)
            require_apart(found, attrs.get(COPY_CONDITION), attrs.get(COLUMNS))
            _require_read(found)
            _require_mark(found, attrs.get(HANDLER_MARK))
            return found
        except VedurError as error:
            problem = error.message
    raise StateError(
        f'table "{table.table_name}" is registered with handler "{stored}", which cannot be '
        f"served: {problem}: no rows are moved. Mend that, or {REMEDY}"
    )


def _require_read(found: Handled) -> None:
    """Raise StateError where the code that makes rows has been edited: the operator expects the new
    code, and this process has the old."""
    name = changed_module(found.rows.sources) if found.rows is not None else None
    if name is not None:
        raise StateError(
            f'the code of module "{name}" has changed since this process has read it: put that '
            "back, or have the worker read it (-r, or a restart) and the table copied anew (resync)"
        )


def _require_mark(found: Handled, stored: str | None) -> None:
    """Raise StateError where the rows that are here were made with other settings. A table that
    Londiste added has no mark."""
    if stored and found.mark and stored != found.mark:
        raise StateError(
            f"{found.handler.depends_on} not what its rows were made with: put that back, or have "
            "the table copied anew (resync)"
        )


def require_apart(found: Handled, condition: str | None, columns: str | None) -> None:
    """Raise UsageError where the table's condition looks at a column that the handler rewrites: a
    first copy would see one value of it, and replay another."""
    if found.calls is not None and condition:
        raise UsageError(
            f'handler "{found.stored}" gets all events: the table cannot have a condition '
            "(--where) beside it"
        )
    if found.rows is None or not condition:
        return
    names = {here: there for there, here in parse_columns(columns)} if columns else {}
    looked_at = [names.get(name, name) for name in columns_of(condition)]
    rewrites = found.rows.rewrites
    if rewrites is None:
        raise UsageError(
            f'handler "{found.stored}" does not say which columns it rewrites, so the table cannot '
            "have a condition (--where) beside it"
        )
    for name in looked_at:
        if name in rewrites:
            raise UsageError(
                f'the condition (--where) looks at column "{name}", which handler '
                f'"{found.stored}" rewrites: a copy and a change would see different values'
            )


def facts_queries(tables: Iterable[RegisteredTable]) -> dict[str, str]:
    """Return the statements that handlers of these tables need an answer to, by table."""
    found = {}
    for table in tables:
        stored = stored_handler(table)
        if not stored:
            continue
        try:
            name, given = parse_stored(stored)
            text = registry().make(name, table.table_name, given).facts_query()
        except VedurError:
            continue  # `resolve` says what is wrong
        if text is not None:
            found[table.table_name] = text
    return found


def needs_table(table: RegisteredTable) -> bool:
    """Must there be a table here? Only for a handler that says so there need not."""
    try:
        handled = resolve(table)
    except StateError:
        return True
    return handled is None or handled.handler.needs_table


def joins(attrs: Mapping[str, str | None]) -> bool:
    """Do these attributes name a handler that decides between rows of several tables?"""
    try:
        name, _ = parse_stored(attrs.get(HANDLER) or "")
        return registry().find(name).joins
    except UsageError:
        return False


def handler_problem(table: RegisteredTable) -> str | None:
    """Return why rows of a table cannot be moved because of its handler; None if they can."""
    try:
        resolve(table)
    except StateError as error:
        return error.message
    return None


def require_handlers(tables: Iterable[RegisteredTable], *, passes_on: bool = False) -> None:
    """Raise `StateError` for the first table whose handler cannot be served; `passes_on`: by a node
    that passes events on."""
    for table in tables:
        handled = resolve(table)
        if passes_on and handled is not None:
            refusal = branch_refusal(handled.stored, handled.handler)
            if refusal:
                raise StateError(f'table "{table.table_name}": {refusal}')


def branch_refusal(stored: str, handler: Handler) -> str:
    """Say why a handler cannot be on a branch; empty where it can."""
    problem = handler.branch_problem()
    return f'handler "{stored}" cannot be on a branch: {problem}' if problem else ""
