"""Commands that return when the node has got somewhere."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.config import LondisteSettings
from vedur.ops import wait_sync as ops_wait
from vedur.ops.session import Session


def wait_sync(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_wait.wait_sync(session)


def wait_root(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_wait.wait_root(session)


def wait_provider(call: Call, settings: LondisteSettings) -> None:
    with Session(settings) as session:
        ops_wait.wait_provider(session)
