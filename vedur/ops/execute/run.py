"""execute: run a script on the root and send it to all nodes at this place in the stream.

Reserve, hold writers off, run, finish: one transaction, in role `local` so that the capture
triggers keep silent. Finishing writes the event. Whoever writes to tables that the script names has
either committed before its first statement or waits for its end, so every node runs the script
between the same two changes (`catalog/execute.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from vedur.catalog.execute import (
    Holding,
    execute_finish,
    execute_start,
    read_local_names,
    refresh_stale_captures,
    run_statements,
)
from vedur.errors import StateError, UsageError
from vedur.failpoint import reach
from vedur.ops.session import Session
from vedur.script.attrs import ScriptAttrs
from vedur.script.on_node import script_here
from vedur.script.script import Script, parse_script

log = logging.getLogger(__name__)


def execute(session: Session, files: Sequence[str]) -> None:
    """Run script files in order; each is one transaction."""
    scripts = read_scripts(files)
    session.require_node()
    for name, script in scripts:
        _execute_one(session, name, script)


def read_scripts(files: Sequence[str]) -> list[tuple[str, Script]]:
    """Read scripts, with the names they are known by; all are read before the first may run."""
    return [(Path(path).name, _read(path)) for path in files]


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
    with db.transaction():
        answer = execute_start(
            db, queue, name, script.text, expect_root=True, attrs=script.encoded_attrs
        )
        if answer.code > 200:
            return
        reach("execute.started")
        names, attrs = read_local_names(db, queue), ScriptAttrs(dict(script.attrs))
        here = script_here(db, names, script.text, attrs)
        if here.fits is None:
            raise StateError(f"{name}: SQL only partially matches local setup")
        if here.fits:
            wait = session.settings.lock_timeout
            run_statements(db, here.statements, Holding(name, names, attrs, wait))
            # altered tables are captured right either way; this keeps them on the quick one
            refresh_stale_captures(db)
        else:
            log.info("%s: This SQL does not need to run on this node.", name)
        reach("execute.run")
        execute_finish(db, queue, name)
        reach("execute.finished")
    reach("execute.committed")
