"""What is read of a node becomes values of ours, or is refused in one line."""

from __future__ import annotations

import pytest

from vedur.errors import StateError
from vedur.node.info import NodeType, _type_of


def test_only_a_leaf_has_no_queue_that_others_read() -> None:
    assert [kind for kind in NodeType if not kind.has_queue] == [NodeType.LEAF]


def test_a_type_of_a_later_version_is_refused_in_words() -> None:
    with pytest.raises(StateError, match='of type "archive", which this version of Vedur does not'):
        _type_of("archive")
