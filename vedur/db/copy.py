"""COPY past the driver: from one server to another, in blocks of rows, many at once.

`pump` moves rows that nobody looks at. libpq hands out COPY data row by row; at about 0.8 µs per
row Python then becomes the bottleneck of a copy (2,000,000 rows: 1.5-2.0 s of CPU against 0.2 s).
But the messages that a server sends for `copy to stdout` are, byte for byte, the messages that
`copy from stdin` wants. So on plain sockets the blocks are passed from socket to socket, libpq
looking on, and the end is found by a random mark that a second statement of the same query string
returns. Encrypted connections take the way through libpq.

`copy_blocks`, `copy_rows` and `copy_all` are for those who do look at rows, or write many small
tables: psycopg waits for every row through its generators, about 5 µs a row; asking libpq directly
takes a tenth of that.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from select import POLLIN, poll

from psycopg import pq

from vedur.db.database import Database
from vedur.db.driver_errors import error_class
from vedur.db.libpq import (
    blocking,
    drain,
    end_copy_in,
    end_copy_out,
    expect,
    failure_of,
    flush,
    is_plain,
    libpq_errors,
    put,
    result_of,
    start,
    wait,
)
from vedur.db.row_security import explain, is_row_security
from vedur.errors import ConnectError, DatabaseError

#: One recv; the kernel seldom has more than 150 kB ready.
_BLOCK = 1 << 18
#: Joined rows per put on the way through libpq; larger ones were slower (64 kB 1.5 s of CPU for
#: 2,000,000 rows, 256 kB 2.0 s, 1 MB 2.8 s).
_PUT = 1 << 16
#: How often an idle wire is looked at for an error that ends the stream.
_IDLE_MS = 1000


@dataclass(frozen=True, slots=True)
class Pumped:
    """What went through: rows that the target counted, bytes on the wire."""

    rows: int
    bytes: int


def pump(
    source: Database, copy_out: str, target: Database, copy_in: str, *, keep: bool = False
) -> Pumped:
    """Run `copy_out` on source into `copy_in` on target.

    The target's transaction stays open for the caller. The source connection is closed by the
    fast path, so its caller opens a new one for the next pump; its transaction must only read.
    With `keep` the rows go through libpq and the source stays open, which is better for few.
    """
    if keep:
        return _keep_source(source, copy_out, target, copy_in)
    way = _splice if is_plain(source) and is_plain(target) else _through_libpq
    with libpq_errors(copy_in):
        return way(source, copy_out, target, copy_in)


def _keep_source(source: Database, copy_out: str, target: Database, copy_in: str) -> Pumped:
    try:
        with libpq_errors(copy_in):
            pumped = _pass_rows(source, copy_out, target, copy_in)
            drain(source.raw.pgconn)
            return pumped
    except BaseException:
        source.close()  # in the middle of a COPY, or in a failed transaction
        raise


def _through_libpq(source: Database, copy_out: str, target: Database, copy_in: str) -> Pumped:
    try:
        return _pass_rows(source, copy_out, target, copy_in)
    finally:
        source.close()


def _pass_rows(source: Database, copy_out: str, target: Database, copy_in: str) -> Pumped:
    start(source, copy_out, pq.ExecStatus.COPY_OUT)
    start(target, copy_in, pq.ExecStatus.COPY_IN)
    out, into = source.raw.pgconn, target.raw.pgconn
    rows: list[bytes | memoryview] = []
    size = total = 0
    while True:
        count, row = out.get_copy_data(1)
        if count == 0:
            wait(out, POLLIN)
            out.consume_input()
            continue
        if count < 0:
            break
        rows.append(row)
        size += count
        if size >= _PUT:
            put(into, b"".join(rows))
            rows.clear()
            total += size
            size = 0
    result = result_of(out)
    if result is None or result.status != pq.ExecStatus.COMMAND_OK:
        raise failure_of(source, result, copy_out)
    put(into, b"".join(rows))
    return Pumped(end_copy_in(target, copy_in), total + size)


def _splice(source: Database, copy_out: str, target: Database, copy_in: str) -> Pumped:
    mark = "end_" + secrets.token_hex(16)
    pgconn = source.raw.pgconn
    pgconn.send_query(f"{copy_out}; select 1 as {mark}".encode())
    flush(pgconn)
    try:
        with blocking(source) as reader:
            head = _read_start(source, reader, copy_out)
            start(target, copy_in, pq.ExecStatus.COPY_IN)
            with blocking(target) as writer:
                total = _forward(source, reader, writer, head, mark, copy_out)
    except OSError as error:
        raise ConnectError(f"connection lost during copy: {error}", query=copy_in) from error
    finally:
        # libpq never saw the answer to its query: this connection is of no further use
        source.close()
    return Pumped(end_copy_in(target, copy_in), total)


def _read_start(source: Database, reader: socket.socket, text: str) -> bytes:
    """Skip the CopyOutResponse; returns the bytes that were read behind it."""
    data = b""
    while True:
        while len(data) < 5 or len(data) < 1 + int.from_bytes(data[1:5], "big"):
            block = reader.recv(_BLOCK)
            if not block:
                raise ConnectError("the server closed the connection", query=text)
            data += block
        size = 1 + int.from_bytes(data[1:5], "big")
        kind, body, rest = data[:1], data[5:size], data[size:]
        if kind == b"H":
            return rest
        if kind == b"E":
            raise _error_response(source, body, text)
        data = rest  # a notice or a parameter status ahead of the answer


def _error_response(source: Database, body: bytes, text: str) -> DatabaseError:
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
    message, state = fields.get(b"M", "the server reported an error"), fields.get(b"C")
    if is_row_security(state, fields.get(b"R")):
        message = explain(message, source.role)
    return (error_class(state) if state else DatabaseError)(
        message,
        sqlstate=state,
        connection=source.name,
        query=text,
    )


def _forward(
    source: Database,
    reader: socket.socket,
    writer: socket.socket,
    head: bytes,
    mark: str,
    text: str,
) -> int:
    """Pass messages on until the mark shows that all have arrived; returns the number of bytes."""
    # CopyDone, CommandComplete "COPY n", then the RowDescription whose only column is the mark.
    # Data cannot hold the mark, it was drawn after the snapshot of the data.
    end = re.compile(
        rb"c\x00\x00\x00\x04C\x00\x00\x00.COPY \d+\x00T.{6}" + mark.encode() + rb"\x00", re.DOTALL
    )
    keep = 256  # longer than what `end` matches
    waiter = poll()
    waiter.register(reader, POLLIN)
    pending = bytearray(head)
    total = 0
    while True:
        # Only the last block can hold the end, and at most its tail is held back for the match.
        mark_at = end.search(pending, max(0, len(pending) - 512)) if pending else None
        if mark_at:
            writer.sendall(memoryview(pending)[: mark_at.start()])
            return total + mark_at.start()
        if len(pending) > keep:
            cut = len(pending) - keep
            writer.sendall(memoryview(pending)[:cut])
            total += cut
            del pending[:cut]
        while not waiter.poll(_IDLE_MS):
            _check_idle(source, bytes(pending), text)
        block = reader.recv(_BLOCK)
        if not block:
            raise ConnectError("the server closed the connection", query=text)
        pending += block


def _check_idle(source: Database, tail: bytes, text: str) -> None:
    """Check that a failed COPY ended in ReadyForQuery of a failed transaction, with nothing behind
    it."""
    if tail.endswith((b"Z\x00\x00\x00\x05E", b"Z\x00\x00\x00\x05I")):
        match = re.search(rb"M([^\x00]+)\x00", tail)
        message = match[1].decode("utf-8", "replace") if match else "copy failed on the source"
        raise DatabaseError(message, connection=source.name, query=text, sqlstate=None)


# -- rows that are looked at ----------------------------------------------------------------------


def copy_blocks(db: Database, text: str, size: int) -> Iterator[bytes]:
    """Run the COPY and yield its rows, about `size` bytes of whole ones at a time; to be read to
    the end. It takes 0.5 µs of CPU a row of 200 bytes; rows kept until the block is full, 0.7."""
    pgconn = db.raw.pgconn
    start(db, text, pq.ExecStatus.COPY_OUT)
    get = pgconn.get_copy_data
    block = bytearray()
    while True:
        got, data = get(1)
        if got > 0:
            block += data
            if len(block) > size:
                yield bytes(block)
                block.clear()
        elif got == 0:
            wait(pgconn, POLLIN)
            pgconn.consume_input()
        else:
            break
    end_copy_out(db, text)
    yield bytes(block)


def copy_rows(db: Database, text: str) -> Iterator[bytes]:
    """Run the COPY and yield its rows, newlines included; to be read to the end."""
    pgconn = db.raw.pgconn
    start(db, text, pq.ExecStatus.COPY_OUT)
    get = pgconn.get_copy_data
    while True:
        size, data = get(1)
        if size > 0:
            yield bytes(data)
        elif size == 0:
            wait(pgconn, POLLIN)
            pgconn.consume_input()
        else:
            break
    end_copy_out(db, text)


def copy_all(db: Database, copies: Sequence[tuple[str, Iterable[bytes]]]) -> None:
    """Run several `copy ... from stdin` with their data, sent as one query.

    The server asks for the data of the next as soon as it has taken that of the one before. 500 of
    40 rows each took 0.07 s, 0.025 of it CPU here; one after the other by psycopg 0.18 and 0.07.
    """
    pgconn = db.raw.pgconn
    whole = "; ".join(text for text, _ in copies)
    with libpq_errors(whole):
        pgconn.send_query(whole.encode())
        for text, blocks in copies:
            expect(db, pq.ExecStatus.COPY_IN, text)
            try:
                for block in blocks:
                    put(pgconn, block)
            except BaseException:
                pgconn.put_copy_end(b"the sender failed")
                drain(pgconn)
                raise
            pgconn.put_copy_end()
            expect(db, pq.ExecStatus.COMMAND_OK, text)
        drain(pgconn)
