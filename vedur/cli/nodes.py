"""Commands that make, change and drop nodes."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.config import LondisteSettings
from vedur.errors import UsageError
from vedur.node.info import NodeType
from vedur.ops import change_location as ops_change_location
from vedur.ops import change_provider as ops_change_provider
from vedur.ops import create_node as ops_create_node
from vedur.ops import drop_node as ops_drop_node
from vedur.ops import pause as ops_pause
from vedur.ops.session import Session


def _create(call: Call, settings: LondisteSettings, kind: NodeType, **more: object) -> None:
    name, location, *_ = (*call.args, None, None)
    provider = getattr(call.options, "provider", None)
    with Session(settings) as session:
        node = ops_create_node.plan_node(
            session, kind, name, location, provider, check=not call.options.nocheck, **more
        )
        ops_create_node.create_node(session, node)


def create_root(call: Call, settings: LondisteSettings) -> None:
    """create-root"""
    _create(call, settings, NodeType.ROOT)


def create_branch(call: Call, settings: LondisteSettings) -> None:
    """create-branch"""
    _create(call, settings, NodeType.BRANCH, sync_watermark=call.options.sync_watermark)


def create_leaf(call: Call, settings: LondisteSettings) -> None:
    """create-leaf"""
    _create(call, settings, NodeType.LEAF, combined=call.options.merge)


def drop_node(call: Call, settings: LondisteSettings) -> None:
    """drop-node"""
    with Session(settings) as session:
        ops_drop_node.drop_node(session, call.args[0])


def pause(call: Call, settings: LondisteSettings) -> None:
    """pause"""
    with Session(settings) as session:
        ops_pause.pause(session, node=call.options.node, consumer=call.options.consumer)


def resume(call: Call, settings: LondisteSettings) -> None:
    """resume"""
    with Session(settings) as session:
        ops_pause.resume(session, node=call.options.node, consumer=call.options.consumer)


def change_provider(call: Call, settings: LondisteSettings) -> None:
    """change-provider"""
    if not call.options.provider:
        raise UsageError("Please specify --provider")
    with Session(settings) as session:
        ops_change_provider.change_provider(session, call.options.provider, node=call.options.node)


def change_location(call: Call, settings: LondisteSettings) -> None:
    """change-location"""
    name, location = call.args
    with Session(settings) as session:
        ops_change_location.change_location(session, name, location, check=not call.options.nocheck)
