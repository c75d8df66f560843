"""Settings of our sessions: what values and statements mean does not depend on the server, the
database or the role. docs/reference/settings-of-sessions.md has the reasons one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vedur.sql import query

if TYPE_CHECKING:
    from vedur.db.database import Database

#: Set in every session when it begins. Events are text, and compare hashes text; a condition, or a
#: script, must mean the same on all nodes. UTF8 because event text of any database must fit. Ticks
#: and rotation need read committed; who wants another level says so at the begin of the
#: transaction. Row level security must refuse and not filter (`row_security.py`).
PINNED = {
    "array_nulls": "on",
    "backslash_quote": "safe_encoding",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "extra_float_digits": "1",
    "gin_fuzzy_search_limit": "0",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "quote_all_identifiers": "off",
    "row_security": "off",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
    "timezone_abbreviations": "Default",
    "transform_null_equals": "off",
    "xmlbinary": "base64",
    "xmloption": "content",
}

#: Statements and not startup options, which poolers refuse. A commit that a crash can undo would
#: break the chain of positions: a tick must outlive what was read up to it, and applied changes the
#: batch that is finished on the provider (waiting for a standby stays).
PIN = "; ".join(
    [
        *(f"set {name} = '{value}'" for name, value in PINNED.items()),
        "select pg_catalog.set_config('synchronous_commit', 'on', false)"
        " where pg_catalog.current_setting('synchronous_commit') = 'off'",
    ]
)


@contextmanager
def kept_settings(db: Database) -> Iterator[None]:
    """Set back, at the end, what the statements inside set in this session; in a transaction.

    The replication role is the caller's business: it holds until the end of the transaction.
    """
    before = _read(db, "identity"), _read(db, "settings")
    yield
    for name, was in zip(("identity", "settings"), before, strict=True):
        now = _read(db, name)  # what may be read and set depends on who it is
        changed = [key for key in was | now if was.get(key) != now.get(key)]
        if changed:
            settings = [was.get(key, "") for key in changed]
            db.query(query("db", "set_back"), [changed, settings, [key in was for key in changed]])


def _read(db: Database, name: str) -> dict[str, str]:
    return dict(db.query(query("db", name)))
