"""A node as JSON: what `status` shows of it and what the page shows besides are one object."""

from __future__ import annotations

from dataclasses import fields

from tests.unit.status.sets import node
from vedur.status.detail import NodeDetail
from vedur.status.overview import node_dict
from vedur.status.snapshot import NodeStatus


def test_no_field_of_the_page_hides_one_of_status() -> None:
    """`node_dict` merges them; of the two lags the contract's stands there as `tick_age`."""
    status, detail = ({item.name for item in fields(kind)} for kind in (NodeStatus, NodeDetail))
    assert status & detail == {"lag"}
    assert set(node_dict(node("leaf"))) == (status | detail) - {"status"}
