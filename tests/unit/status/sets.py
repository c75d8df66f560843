"""Sets that were looked at, made up by tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from vedur.status.detail import (
    NodeDetail,
    QueueHealth,
)
from vedur.status.overview import Overview
from vedur.status.snapshot import NodeStatus

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(
    name: str, type: str = "leaf", provider: str | None = "root", **more: object
) -> NodeDetail:
    status = NodeStatus(name, type, None if type == "root" else provider, tick=5, tables_ok=1)
    return replace(NodeDetail(status, lag=0.0, backlog=0, server_version=160003), **more)  # type: ignore[arg-type]


def overview(*nodes: NodeDetail, local: str = "root") -> Overview:
    return Overview("q", local, START, nodes)


HEALTHY = QueueHealth(
    event_tables=3,
    current_table=0,
    rotation_period=7200.0,
    since_rotation=60.0,
    external_ticker=False,
    ticker_paused=False,
    idle_period=60.0,
    ticker_lag=1.0,
    events_per_second=10.0,
    events_new=0,
    last_tick=5,
    first_tick=1,
    events_total=100,
)
