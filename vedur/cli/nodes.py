"""Commands that make, change and drop nodes."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.cli.output import print_json
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.node.info import NodeType
from vedur.ops import change_location as ops_change_location
from vedur.ops import change_provider as ops_change_provider
from vedur.ops import create_node as ops_create_node
from vedur.ops import drop_node as ops_drop_node
from vedur.ops import pause as ops_pause
from vedur.ops import rename_node as ops_rename_node
from vedur.ops import tag_node as ops_tag_node
from vedur.ops.session import Session
from vedur.ops.takeover import run as ops_takeover
from vedur.ops.takeover.options import TIMEOUT, TakeoverOptions


def _create(call: Call, settings: LondisteSettings, kind: NodeType, **more: object) -> None:
    name, location, *_ = (*call.args, None, None)
    provider = getattr(call.options, "provider", None)
    with Session(settings) as session:
        node = ops_create_node.plan_node(
            session, kind, name, location, provider, check=not call.options.nocheck, **more
        )
        ops_create_node.create_node(session, node)


def create_root(call: Call, settings: LondisteSettings) -> None:
    _create(call, settings, NodeType.ROOT)


def create_branch(call: Call, settings: LondisteSettings) -> None:
    _create(call, settings, NodeType.BRANCH, sync_watermark=call.options.sync_watermark)


def create_leaf(call: Call, settings: LondisteSettings) -> None:
    _create(call, settings, NodeType.LEAF, combined=call.options.merge)


def drop_node(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_drop_node.drop_node(
            session,
            call.args[0],
            reparent=call.options.reparent,
            forget_consumers=call.options.forget_consumers,
            max_wait=_max_wait(call),
        )


def pause(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_pause.pause(session, node=call.options.node, consumer=call.options.consumer)


def resume(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_pause.resume(session, node=call.options.node, consumer=call.options.consumer)


def change_provider(call: Call, settings: LondisteSettings) -> None:
    if not call.options.provider:
        raise UsageError("Please specify --provider")
    with Session(settings) as session:
        ops_change_provider.change_provider(
            session,
            call.options.provider,
            node=call.options.node,
            consumer=call.options.consumer,
            dead=call.options.dead,
            max_wait=_max_wait(call),
        )


def _max_wait(call: Call) -> float:
    given: float | None = call.options.max_wait
    return ops_change_provider.MAX_WAIT if given is None else given


def tag_dead(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_tag_node.tag_dead(session, call.args)


def tag_alive(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_tag_node.tag_alive(session, call.args)


def rename_node(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_rename_node.rename_node(session, *call.args)


def change_location(call: Call, settings: LondisteSettings) -> None:
    name, location = call.args
    with Session(settings) as session:
        ops_change_location.change_location(session, name, location, check=not call.options.nocheck)


def takeover(call: Call, settings: LondisteSettings) -> int:
    chosen = call.options
    if chosen.dead_root and chosen.dead_branch:
        raise UsageError("--dead-root and --dead-branch exclude each other: which one is it?")
    if chosen.abort and (chosen.dead_root or chosen.dead_branch):
        raise UsageError("--abort undoes a takeover of a root that answers: leave out --dead-*")
    if chosen.no_compare and (chosen.abort or chosen.dead_root or chosen.dead_branch):
        raise UsageError(
            "--no-compare is for a takeover between two roots that answer: nothing is compared "
            "with --abort, --dead-root or --dead-branch, leave it out"
        )
    if chosen.max_lag is not None and (chosen.abort or chosen.dead_root or chosen.dead_branch):
        raise UsageError(
            "--max-lag is for the takeover of a root that answers: nobody is waited for so with "
            "--abort, --dead-root or --dead-branch, leave it out"
        )
    if chosen.all and chosen.abort:
        raise UsageError("--abort opens the old root again and moves nobody: leave out --all")
    options = TakeoverOptions(
        node=chosen.node,
        everybody=chosen.all,
        dead=tuple(chosen.dead),
        dead_root=chosen.dead_root,
        dead_branch=chosen.dead_branch,
        dry_run=chosen.dry_run,
        abort=chosen.abort,
        compare=not chosen.no_compare,
        max_lag=chosen.max_lag,
        timeout=TIMEOUT if chosen.timeout is None else chosen.timeout,
    )
    with Session(settings) as session:
        return ops_takeover.takeover(session, call.args[0], options)


def switchover(call: Call, settings: LondisteSettings) -> int | None:
    chosen = call.options
    if not chosen.check:
        raise UsageError(
            "switchover only asks: say --check; the command that moves the root is takeover OLD"
        )
    options = TakeoverOptions(
        node=chosen.node,
        dead=tuple(chosen.dead),
        max_lag=chosen.max_lag,
    )
    with Session(settings) as session:
        old, new, reasons = ops_takeover.check_switchover(session, options)
    if chosen.json:
        print_json({"old": old, "new": new, "possible": not reasons, "reasons": reasons})
    elif reasons:
        print(f"no: {new} cannot take over from {old}")
        for reason in reasons:
            print(f"- {reason}")
    else:
        print(f"yes: {new} can take over from {old}")
    return 1 if reasons else None
