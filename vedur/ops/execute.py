"""execute: run a script on the root and send it to all nodes at this place in the stream.

Reserve, run, finish: one transaction, in role `local` so that the capture triggers keep silent;
finishing writes the event, so every node runs the script between the same two changes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from vedur.catalog.execute import execute_finish, execute_start, set_session_replication_role
from vedur.catalog.script import LocalNames, Script, needed, parse_script, with_local_names
from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import existing, get_table_list
from vedur.db import Database
from vedur.errors import UsageError
from vedur.names import fqname
from vedur.node.info import NodeInfo
from vedur.ops.session import Session
from vedur.sql import query

log = logging.getLogger(__name__)

_FUNCTION = re.compile(r"^(?:(\w+)\.)?(\w+)\((\d+)\)$")
_KINDS = {"need-table": ("r", "p"), "need-sequence": ("S",), "need-view": ("v", "m")}


def execute(session: Session, files: Sequence[str]) -> None:
    """Run script files in order; each is one transaction."""
    scripts = [(Path(path).name, _read(path)) for path in files]
    info = session.require_node()
    for name, script in scripts:
        _execute_one(session, info, name, script)


def _read(path: str) -> Script:
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise UsageError(f'cannot read script "{path}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise UsageError(f'script "{path}" is not UTF-8: byte {error.start}') from error
    try:
        script = parse_script(text)
    except UsageError as error:
        raise UsageError(f"{Path(path).name}: {error.message}") from error
    if not script.statements:
        raise UsageError(f'script "{path}" holds no statement')
    return script


def _execute_one(session: Session, info: NodeInfo, name: str, script: Script) -> None:
    db, queue = session.db, session.queue
    local = local_names(db, queue)
    with db.transaction():
        answer = execute_start(
            db, queue, name, script.text, expect_root=True, attrs=script.encoded_attrs
        )
        if answer.code > 200:
            return
        if needed(script.attrs, local, lambda key, what: thing_exists(db, key, what)):
            set_session_replication_role(db, "local")
            for statement in script.statements:
                db.execute(with_local_names(statement, script.attrs, local))
        else:
            log.info("%s: This SQL does not need to run on this node.", name)
        execute_finish(db, queue, name)


def local_names(db: Database, queue: str) -> LocalNames:
    """The replicated tables and sequences of a node, with their local names."""
    tables = {t.table_name: t.dest_table for t in get_table_list(db, queue) if t.local}
    sequences = {s.seq_name: s.seq_name for s in get_seq_list(db, queue) if s.local}
    return LocalNames(tables, sequences)


def thing_exists(db: Database, key: str, name: str) -> bool:
    """Whether the database has what a Need-… key names."""
    if key == "need-schema":
        return bool(db.value(query("admin", "has_schema"), [name]))
    if key == "need-function":
        match = _FUNCTION.match(name)
        if not match:
            raise UsageError(f'Need-Function expects name(number of arguments), got "{name}"')
        schema = match[1] or "public"
        return bool(db.value(query("admin", "has_function"), [schema, match[2], int(match[3])]))
    return bool(existing(db, [fqname(name)], _KINDS[key]))
