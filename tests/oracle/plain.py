"""The slow, obvious way to replay: every event as one statement, in the order of ev_id.

Shares no code with the package but the connection: what it leaves behind is what replay must
leave behind.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote_plus

from vedur.db import Database


def events(root: Database, queue: str, first: int, last: int) -> list[Any]:
    """All events after tick `first` up to tick `last`, by the server's own visibility rules."""
    return root.query(
        """
        select e.*
        from pgq.queue q
        join pgq.tick t1 on t1.tick_queue = q.queue_id and t1.tick_id = %(first)s
        join pgq.tick t2 on t2.tick_queue = q.queue_id and t2.tick_id = %(last)s
        cross join pgq.event_1 e
        where q.queue_name = %(queue)s
            and txid_visible_in_snapshot(e.ev_txid, t2.tick_snapshot)
            and not txid_visible_in_snapshot(e.ev_txid, t1.tick_snapshot)
        order by e.ev_id
        """,
        {"queue": queue, "first": first, "last": last},
    )


def apply(db: Database, rows: list[Any]) -> int:
    """Apply events in one transaction in replica role; returns how many were applied."""
    count = 0
    with db.transaction():
        db.execute("set local session_replication_role = replica")
        for row in rows:
            statement = _statement(row)
            if statement:
                db.execute(*statement)
                count += 1
    return count


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def _table(name: str) -> str:
    schema, _, table = name.partition(".")
    return f"{_quote(schema)}.{_quote(table)}"


def _statement(ev: Any) -> tuple[str, list[Any]] | None:
    kind, data = ev.ev_type, ev.ev_data
    if kind.startswith(("pgq.", "londiste.")):
        return None
    table = _table(ev.ev_extra1)
    if kind == "R" or kind.startswith('{"op":"TRUNCATE"') or '"TRUNCATE"' in kind:
        return f"truncate only {table}", []
    if kind in ("I", "U", "D"):
        verb = {
            "I": "insert into {} {}",
            "U": "update only {} set {}",
            "D": "delete from only {} where {}",
        }
        return verb[kind].format(table, data).replace("%", "%%"), []
    if kind.startswith("{"):
        said = json.loads(kind)
        op, keys = said["op"][0], said["pkey"]
        row = {
            k: _json_text(v) for k, v in json.loads(data, parse_float=str, parse_int=str).items()
        }
    else:
        op, keys = kind[0], kind[2:].split(",")
        row = {}
        for part in data.split("&"):
            name, eq, value = part.partition("=")
            row[unquote_plus(name)] = unquote_plus(value) if eq else None
    return _row_statement(op, table, keys, row)


def _json_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "t" if value else "f"
    return value


def _row_statement(
    op: str, table: str, keys: list[str], row: dict[str, Any]
) -> tuple[str, list[Any]]:
    def lit(value: Any) -> str:
        # A literal of unknown type, so that the server reads it as the column's type.
        if value is None:
            return "null"
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("%", "%%")
        return f"E'{escaped}'"

    where = " and ".join(f"{_quote(k)} = {lit(row[k])}" for k in keys)
    if op == "I":
        names = ", ".join(map(_quote, row))
        return f"insert into {table} ({names}) values ({', '.join(map(lit, row.values()))})", []
    if op == "D":
        return f"delete from only {table} where {where}", []
    sets = ", ".join(f"{_quote(c)} = {lit(v)}" for c, v in row.items() if c not in keys)
    return f"update only {table} set {sets} where {where}", []
