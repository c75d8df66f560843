"""execute --dry-run: what every node of the set would run for a script. Nothing is written.

Each node is asked for its own tables, so the answer holds for names, conditions and scripts that
have run before. A node that cannot be asked is named, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vedur.catalog.execute import applied_script, read_local_names
from vedur.db import Database
from vedur.errors import DatabaseError, RefusedError, UsageError
from vedur.log import mask
from vedur.node.info import Location, NodeInfo, get_node_info, has_schema
from vedur.ops.execute.run import read_scripts
from vedur.ops.session import Session
from vedur.script.attrs import ScriptAttrs
from vedur.script.missing_names import lacking
from vedur.script.on_node import script_here
from vedur.script.script import Script, known_as


@dataclass(frozen=True)
class NodePlan:
    """One script on one node: its statements, or a note why there are none. `trouble` says that
    the script would stop the node, or that nobody knows; `warnings` name what the statements
    mention and the node lacks, as far as that can be seen from outside."""

    script: str
    node: str
    node_type: str
    statements: tuple[str, ...] = ()
    note: str = ""
    trouble: bool = False
    warnings: tuple[str, ...] = ()


def plan_execute(session: Session, files: Sequence[str]) -> list[NodePlan]:
    """Plan all scripts on all nodes, the root first; reads the files, and asks each node."""
    scripts = read_scripts(files)
    info = session.require_node()
    if not info.is_root:
        raise RefusedError(f"Node is not root node: {session.queue}", code=401)
    members = sorted(session.members(), key=lambda m: (m.node_name != info.node_name, m.node_name))
    return [plan for member in members for plan in _plan_member(session, info, member, scripts)]


def _plan_member(
    session: Session, root: NodeInfo, member: Location, scripts: Sequence[tuple[str, Script]]
) -> list[NodePlan]:
    name = member.node_name
    if member.dead:
        return [NodePlan(script, name, "dead", note="tagged as dead") for script, _ in scripts]
    try:
        local = name == root.node_name
        db = session.db if local else session.remote(member.node_location, f"node.{name}")
        info = root if local else get_node_info(db, session.queue) if has_schema(db) else None
        if info is None:
            raise DatabaseError(f'no node for queue "{session.queue}" there')
        plans: list[NodePlan] = []
        for item in scripts:
            earlier = [statement for plan in plans for statement in plan.statements]
            plan = _plan_script(session, db, info, *item)
            plans.append(replace(plan, warnings=tuple(lacking(db, plan.statements, earlier))))
        return plans
    except DatabaseError as error:
        note = mask(error.message)
        return [NodePlan(script, name, "unknown", note=note, trouble=True) for script, _ in scripts]


def _plan_script(
    session: Session, db: Database, info: NodeInfo, name: str, script: Script
) -> NodePlan:
    def plan(statements: tuple[str, ...] = (), note: str = "", trouble: bool = False) -> NodePlan:
        return NodePlan(name, info.node_name, str(info.node_type), statements, note, trouble)

    here = name if info.is_root else known_as(name, session.queue, script.attrs)
    applied = applied_script(db, here)
    if applied == script.text:
        return plan(note="already applied, skipping")
    if applied is not None and info.is_root:
        return plan(
            note="was applied with other content, give the changed script a new name", trouble=True
        )
    try:
        found = script_here(
            db, read_local_names(db, session.queue), script.text, ScriptAttrs(dict(script.attrs))
        )
    except UsageError as error:
        return plan(note=error.message, trouble=True)
    if found.fits is None:
        return plan(note="SQL only partially matches local setup", trouble=True)
    if not found.fits:
        return plan(note="This SQL does not need to run on this node.")
    return plan(found.statements)
