"""Fixtures of the status page: a set in real databases, and the page on a real port."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures.pg import Servers, TestServer
from tests.web.lab import Browser, SetLab
from vedur import db as vdb
from vedur.node.info import NodeType
from vedur.ops.web import StatusPage
from vedur.web import source

MakeOn = Callable[..., vdb.Database]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may look slowly."""
    monkeypatch.setattr(source, "PATIENCE", 100.0)


@pytest.fixture
def lab(oldest: TestServer, newest: TestServer, make_db_on: MakeOn) -> Iterator[SetLab]:
    """A root on the oldest server at hand, two leaves on the newest; tables in sync."""
    lab = SetLab()
    lab.add_node("src", make_db_on(oldest), NodeType.ROOT)
    lab.add_node("dst", make_db_on(newest), NodeType.LEAF)
    lab.add_node("eu", make_db_on(newest), NodeType.LEAF)
    lab.add_tables("shop.orders", "shop.lines")
    lab.uptodate()
    yield lab
    lab.close()


@pytest.fixture
def open_page() -> Iterator[Callable[..., Browser]]:
    """open_page(session, **settings): the page of a node, on a port of its own."""
    pages: list[StatusPage] = []

    def start(session: Any, **changes: Any) -> Browser:
        settings = dataclasses.replace(session.settings, **changes)
        pages.append(StatusPage.start(settings, port=0))
        return Browser(pages[-1])

    yield start
    for page in pages:
        page.stop()


@pytest.fixture
def upstream_pair(servers: Servers, make_db_on: MakeOn) -> Iterator[SetLab]:
    """A root and a leaf on upstream's own schemas."""
    lab = SetLab()
    lab.add_node("src", make_db_on(servers.get(15), "upstream"), NodeType.ROOT)
    lab.add_node("dst", make_db_on(servers.get(15), "upstream"), NodeType.LEAF)
    lab.add_tables("shop.orders")
    yield lab
    lab.close()
