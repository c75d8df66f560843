"""Nodes to copy from are looked for beside the worker, one search for each table at a time."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

from vedur.catalog import TableInfo
from vedur.errors import StateError
from vedur.worker.first_copy.context import CopySource
from vedur.worker.first_copy.places import SourceSearch

TABLE = TableInfo("t", True, None, None, None, None, None, None, "t")


def test_a_node_that_was_found_is_kept_until_the_copy_begins() -> None:
    threads, found, failed = MagicMock(), MagicMock(), MagicMock()
    search = SourceSearch(threads, found, failed)
    places, node = cast(Any, MagicMock()), CopySource("n3", "dbname=x", other=True)
    places.nearest.return_value = node
    assert search.find(places, TABLE) is None
    assert search.sought() == {"t"}
    threads.start.call_args.args[0]()
    assert not search.sought()
    found.assert_called_once_with()
    assert search.find(places, TABLE) == node
    assert search.find(places, TABLE) == node
    assert threads.start.call_count == 1
    search.forget(TABLE)
    assert search.find(places, TABLE) is None
    assert threads.start.call_count == 2
    failed.assert_not_called()


def test_a_search_that_fails_ends_behind_the_pause_that_it_leaves() -> None:
    """Else the worker could take the table up between the two."""
    threads = MagicMock()
    sought_meanwhile: list[frozenset[str]] = []
    error = StateError("nobody has it")

    def failed(table: TableInfo, source: CopySource, why: Exception) -> None:
        assert (table, source, why) == (TABLE, places.provider, error)
        sought_meanwhile.append(search.sought())

    search = SourceSearch(threads, MagicMock(), failed)
    places = cast(Any, MagicMock())
    places.nearest.side_effect = error
    search.find(places, TABLE)
    threads.start.call_args.args[0]()
    assert sought_meanwhile == [{"t"}]
    assert not search.sought()
