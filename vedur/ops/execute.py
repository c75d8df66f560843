"""execute: run a script on the root and send it to all nodes at this place in the stream.

Reserve, run, finish: one transaction, in role `local` so that the capture triggers keep silent;
finishing writes the event, so every node runs the script between the same two changes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from vedur.catalog.execute import (
    execute_finish,
    execute_start,
    refresh_stale_captures,
    set_session_replication_role,
)
from vedur.catalog.script import Script, parse_script
from vedur.catalog.sequences import get_seq_list
from vedur.catalog.tables import get_table_list
from vedur.errors import StateError, UsageError
from vedur.ops.session import Session
from vedur.worker.script_attrs import ScriptAttrs, matches

log = logging.getLogger(__name__)


def execute(session: Session, files: Sequence[str]) -> None:
    """Run script files in order; each is one transaction."""
    scripts = [(Path(path).name, _read(path)) for path in files]
    session.require_node()
    for name, script in scripts:
        _execute_one(session, name, script)


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


def _execute_one(session: Session, name: str, script: Script) -> None:
    db, queue = session.db, session.queue
    attrs = ScriptAttrs(dict(script.attrs))
    tables = {t.table_name: t.dest_table for t in get_table_list(db, queue) if t.local}
    sequences = {s.seq_name for s in get_seq_list(db, queue) if s.local}
    with db.transaction():
        answer = execute_start(
            db, queue, name, script.text, expect_root=True, attrs=script.encoded_attrs
        )
        if answer.code > 200:
            return
        fits = matches(db, attrs, tables, sequences)
        if fits is None:
            raise StateError(f"{name}: SQL only partially matches local setup")
        if fits:
            set_session_replication_role(db, "local")
            for statement in script.statements:
                db.execute(attrs.substitute(statement, tables, sequences))
            # altered tables are captured right either way; this keeps them on the quick one
            refresh_stale_captures(db)
        else:
            log.info("%s: This SQL does not need to run on this node.", name)
        execute_finish(db, queue, name)
