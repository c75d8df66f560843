"""Rows of a COPY that go through a handler's function on their way from server to server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vedur.change.formats import fields, line, mend
from vedur.db import Database
from vedur.db.copy import Pumped, copy_all, copy_blocks
from vedur.errors import StateError
from vedur.sql import query
from vedur.tables.row_function import RowFunction

#: Bytes of rows that the handler sees at a time.
_BLOCK = 1 << 20


@dataclass
class HandedRows:
    """`columns` are those of the COPY, `made` those of the handler that are wanted, in order."""

    rows: RowFunction
    columns: tuple[str, ...]
    made: tuple[str, ...]
    count: int = 0
    size: int = 0
    prefix: str = ""  # stands before each row
    key: tuple[str, ...] = ()  # columns that identify rows, by which later changes find them

    def pass_on(
        self, source: Database, copy_out: str, target: Database, copy_in: str, *, keep: bool = False
    ) -> Pumped:
        """Run `copy_out` (text) on source into `copy_in` on target, whose transaction stays open
        for the caller. The source is closed unless it is to be kept, and nothing failed.

        The handler sees moments as those of changes are shown to it, in UTC.
        """
        any_bytes = self.rows.mends and source.encoding == "SQL_ASCII"
        try:
            source.execute(query("copy", "moments_in_utc"))
            if any_bytes:
                source.execute(query("replay", "any_bytes"))
            copy_all(target, [(copy_in, self._blocks(source, copy_out))])
            if any_bytes:
                source.execute(query("replay", "only_utf8"))
        except BaseException:
            source.close()  # in the middle of a COPY
            raise
        if not keep:
            source.close()
        return Pumped(self.count, self.size)

    def _blocks(self, source: Database, copy_out: str) -> Iterator[bytes]:
        for block in copy_blocks(source, copy_out, _BLOCK):
            self.size += len(block)
            if block:
                yield self._handed(block)

    def _handed(self, block: bytes) -> bytes:
        try:
            text = mend(block) if self.rows.mends else block.decode()
        except UnicodeDecodeError:
            raise StateError(
                f'table "{self.rows.table}": rows that are not UTF-8 cannot be given to handler '
                f'"{self.rows.handler}"'
            ) from None
        read = [fields(row) for row in text.split("\n")[:-1]]
        names, rows = self.rows.apply(self.columns, read, self.key)
        places = [names.index(name) for name in self.made]
        kept = [row for row in rows if row is not None]
        self.count += len(kept)
        return "".join(self.prefix + line([row[at] for at in places]) for row in kept).encode()
