"""`transform`: a function of the operator's over rows, `add-table --transform module:function`.

The function takes an Arrow record batch and returns one, as `Handler.rows` does. Three attributes
of the function tell what Vedur cannot see: `rewrites`, the names of the columns that it changes
(then the table may have a condition over the others, and the key may be among them), `filters`,
which is False for a function that never leaves a row out, and `by_column`, which is True for one
that makes each column from itself alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from vedur.errors import UsageError, first_line
from vedur.handlers.api import Argument, Handler, Scope
from vedur.tables.row_function import ColumnSet

if TYPE_CHECKING:
    import pyarrow as pa


class Transform(Handler):
    """Calls a function that is found by name."""

    name = "transform"
    summary = "Calls a function of yours for rows of a copy and of changes."
    depends_on = "the code of its function is"
    arguments = (
        Argument("function", "module:function, over an Arrow record batch", required=True),
    )

    def __init__(self, table: str, given: Mapping[str, str], options: Mapping[str, str]) -> None:
        super().__init__(table, given, options)
        self.function = find_function(given["function"])

    @classmethod
    def modules(cls, given: Mapping[str, str]) -> tuple[str, ...]:
        """Return the module that is named."""
        return (given["function"].partition(":")[0],)

    def scope(self, facts: tuple[Any, ...] | None, names: Mapping[str, str]) -> Scope:
        """Return what the function says of itself; otherwise it may change any column and leave
        rows out."""
        self._require_own_function()
        rewrites = getattr(self.function, "rewrites", None)
        return Scope(
            rewrites=None if rewrites is None else ColumnSet.of(*rewrites),
            filters=bool(getattr(self.function, "filters", True)),
            by_column=bool(getattr(self.function, "by_column", False)),
        )

    def _require_own_function(self) -> None:
        """Raise UsageError for a function that the module has from another package: nobody would
        notice that its code changes."""
        home = self.function.__module__ if isinstance(self.function, FunctionType) else None
        if self.sources and home and home not in {source.name for source in self.sources}:
            name = self.given["function"]
            raise UsageError(
                f'transform "{name}" is defined in module "{home}", so a change of its code would '
                f"not be noticed: write {home}:{self.function.__name__}, and functools.wraps "
                "where a decorator is from there"
            )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Call the function."""
        return self.function(batch)


def find_function(name: str) -> Callable[[Any], Any]:
    """Import the function `module:function`; raises `UsageError` that says what is wrong."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise UsageError(f'transform "{name}" is no function: write it as module:function')
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:
        raise UsageError(
            f'transform "{name}": module "{module}" cannot be loaded: '
            f"{type(error).__name__}: {first_line(error)}"
        ) from None
    if not callable(found):
        raise UsageError(f'transform "{name}": module "{module}" has no function "{function}"')
    if _wants_frame(found):
        raise UsageError(
            f'transform "{name}" takes a DataFrame: changes are transformed inside tasks, where '
            "there is no Spark session; write it over a pyarrow.RecordBatch (to_pandas() makes a "
            "pandas DataFrame of one)"
        )
    return found  # type: ignore[no-any-return]


def _wants_frame(function: Callable[..., Any]) -> bool:
    try:
        told = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    return (bool(told) and "pyspark" in str(getattr(told[0].annotation, "__module__", ""))) or (
        bool(told) and isinstance(told[0].annotation, str) and "DataFrame" in told[0].annotation
    )
