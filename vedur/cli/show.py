"""Commands that only show."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict

from vedur.cli.grammar import Call
from vedur.cli.output import print_json, print_table, wants_colour
from vedur.config import LondisteSettings
from vedur.errors import VedurError
from vedur.handlers.api import Argument
from vedur.handlers.registry import load_handlers, registry
from vedur.ops import show
from vedur.ops.session import Session
from vedur.status.snapshot import SetStatus
from vedur.status.tree import compact_lines, info_lines, title, tree_lines

log = logging.getLogger("vedur.cli")


def status(call: Call, settings: LondisteSettings) -> None:
    found = _read_status(call, settings)
    if call.options.json:
        print_json(found.as_dict())
    else:
        _print_status(call, found)


def status_of_all(call: Call, several: list[LondisteSettings]) -> int:
    """Show one queue after the other; one that cannot be asked keeps none of the others back."""
    code = 0
    told: list[dict[str, object]] = []
    for number, settings in enumerate(several):
        try:
            load_handlers(settings)
            found = _read_status(call, settings)
        except VedurError as error:
            code = code or error.exit_code
            told.append({"queue": settings.queue_name, "unreadable": error.message})
            log.error('queue "%s" (%s): %s', settings.queue_name, settings.config_file,
                      error.message)  # fmt: skip
            continue
        told.append(found.as_dict())
        if not call.options.json:
            if number:
                print()
            _print_status(call, found)
    if call.options.json:
        print_json(told)
    return code


def _read_status(call: Call, settings: LondisteSettings) -> SetStatus:
    with Session(settings) as session:
        return show.status(session, call.options.dead)


def _print_status(call: Call, found: SetStatus) -> None:
    lines = compact_lines if call.options.compact else tree_lines
    print(f"Queue: {found.queue}   Local node: {found.local_node}\n")
    for line in lines(found, colour=wants_colour(sys.stdout, os.environ)):
        print(line)
    sys.stdout.flush()  # log lines of a queue that cannot be asked stand below it


def members(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        info, locations = show.members(session)
    print_table(
        f"Member info on {info.node_name}@{settings.queue_name}:",
        ("node_name", "dead", "node_location"),
        [(member.node_name, member.dead, member.node_location) for member in locations],
        as_json=call.options.json,
    )


def node_info(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        node = show.node_info(session)
    info = node.info
    if call.options.json:
        value = asdict(info) | {"dead": node.dead, "local_location": node.local}
        value |= {"public_location": node.public, "provider_location": node.provider}
        print_json(value | {"reign": asdict(node.reign) if node.reign else None})
        return
    health = ["DEAD"] if node.dead else []
    health += ["PAUSED"] if info.worker_paused else []
    health += [] if info.worker_uptodate else ["NON-UP-TO-DATE"]
    print(f"Node: {info.node_name}  Type: {info.node_type}  Queue: {settings.queue_name}")
    print(f"Status: {', '.join(health) or 'OK'}")
    print(f"Provider: {'--' if info.is_root else info.provider_node}")
    print("Connect strings:")
    print(f"  Local   : {node.local}")
    print(f"  Public  : {node.public}")
    if node.provider:
        print(f"  Provider: {node.provider}")
    if node.reign:
        print(f"Epoch: {node.reign.epoch}, of root {node.reign.root}")
    else:
        print("Epoch: none: the set was made by Londiste, or before Vedur had epochs")
    if info.combined_queue:
        print(f"Combined Queue: {info.combined_queue}  Type: {info.combined_type}")


def node_status(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        node = show.node_status(session)
    if call.options.json:
        print_json(asdict(node))
        return
    print(title(node.status))
    print(f"    Provider: {node.provider}")
    print(f"    Subscribers: {', '.join(node.subscribers)}")
    for line in info_lines(node.status, colour=wants_colour(sys.stdout, os.environ)):
        print(f"    {line}")


def tables(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        listed = show.tables(session)
        copies = show.copies(session) if call.options.verbose else []
    if call.options.names_only and not call.options.json:
        for table in listed:
            print(table.table_name)
        return
    columns = ["table_name", "merge_state", "table_attrs"]
    rows = [[table.table_name, table.merge_state, table.attrs] for table in listed]
    if call.options.json:
        columns.append("dest_table")
        rows = [[*row, table.dest_table] for row, table in zip(rows, listed, strict=True)]
    print_table("Tables on node", columns, rows, as_json=call.options.json)
    if not call.options.json:
        print_table(
            "First copies under way",
            ("table_name", "step", "slices", "rows", "megabytes", "seconds", "error"),
            [
                (
                    copy.table_name,
                    f"{copy.step} {copy.step_name}",
                    f"{copy.slices_done}/{copy.slices}",
                    f"{copy.rows_done}/{copy.rows_estimated or '?'}",
                    f"{copy.bytes_done / 1e6:.1f}",
                    f"{copy.seconds:.0f}",
                    copy.error or "",
                )
                for copy in copies
            ],
        )


def seqs(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        sequences = show.seqs(session)
    print_table(
        "Sequences on node",
        ("seq_name", "local", "last_value"),
        [(seq.seq_name, seq.local, seq.last_value) for seq in sequences],
        as_json=call.options.json,
    )


def missing(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        objects = show.missing(session)
        reasons = show.unusable(session)
    if call.options.json:
        known = {name for _, name in objects}
        rows = [(kind, name, reasons.get(name)) for kind, name in objects]
        rows += [("r", name, why) for name, why in reasons.items() if name not in known]
        print_table("", ("obj_kind", "obj_name", "reason"), rows, as_json=True)
        return
    print_table("Missing objects on node", ("obj_kind", "obj_name"), objects)
    for name, reason in sorted(reasons.items()):
        log.info("%s cannot be added: %s", name, reason)


def show_handlers(call: Call, settings: LondisteSettings) -> None:
    known = registry()
    if not call.args:
        for name in sorted(known.classes):
            print(f"{name} - {known.classes[name].summary}")
        return
    for handler in [known.find(name) for name in call.args]:
        print(f"{handler.name} - {handler.summary}\n\nArguments:")
        for argument in handler.arguments:
            print(f"  {argument.name:<20}{argument.meaning}{_allowed(argument)}")
        if handler.ini_keys:
            print(f"\nKeys of the ini: {', '.join(handler.ini_keys)}")


def _allowed(argument: Argument) -> str:
    told = [f"one of {', '.join(argument.choices)}"] if argument.choices else []
    told += ["required"] if argument.required else []
    told += [f"default {argument.default}"] if argument.default is not None else []
    return f" ({'; '.join(told)})" if told else ""
