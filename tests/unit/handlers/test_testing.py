"""The kit for handlers accepts what holds and names what does not."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.labs.handlers import KEY
from vedur.handlers.api import ColumnSet, Handler, Scope
from vedur.handlers.obfuscate import Obfuscate
from vedur.handlers.testing import Sample, check_handler
from vedur.handlers.transform import Transform

ROWS = [{"id": str(n), "v": word} for n, word in enumerate(["a", None, "secret", "bb", "secret"])]
SAMPLE = Sample("public.t", ("id",), ROWS)


class Cut(Handler):
    """Cuts the key, as it says."""

    name = "cut"

    def scope(self, facts: Any, names: Any) -> Scope:
        return Scope(rewrites=ColumnSet.of("id"))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        short = pc.utf8_slice_codeunits(batch["id"], 0, 0)
        return batch.set_column(0, "id", short)


class Counts(Handler):
    """Has state from call to call."""

    name = "counts"
    calls: ClassVar[int] = 0

    def scope(self, facts: Any, names: Any) -> Scope:
        return Scope(rewrites=ColumnSet.of("v"))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        type(self).calls += 1
        return batch.set_column(1, "v", pa.array([str(self.calls)] * len(batch)))


class OfTheBlock(Counts):
    """Looks at other rows."""

    name = "of_the_block"

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "v", pa.array([str(len(batch))] * len(batch)))


class Together(Handler):
    """Says that it makes each column from itself alone, and looks at another."""

    name = "together"

    def scope(self, facts: Any, names: Any) -> Scope:
        return Scope(rewrites=ColumnSet.of("v"), by_column=True)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if "id" not in batch.schema.names:
            return batch
        return batch.set_column(1, "v", batch["id"])


def test_what_holds() -> None:
    rules = {"public.t": {"id": "hash", "v": "mask"}}
    options = {"obfuscator_key": KEY, "obfuscator_map": json.dumps(rules)}
    found = check_handler(Obfuscate, SAMPLE, options=options)
    assert len({row["id"] for row in found if row}) == len(ROWS)
    sample = Sample("public.t", ("id",), [{**row, "private": "x"} for row in ROWS])
    shouted = check_handler(Transform, sample, {"function": "tests.labs.transforms:shout"})
    assert shouted[0] == {"id": "0", "v": "A", "size": "1"} and shouted[2] is None


@pytest.mark.parametrize(
    "cls, message",
    [
        (Cut, "two keys become one"),
        (Counts, "not the same|made anew"),
        (OfTheBlock, "not the same in blocks of 2"),
        (Together, "row 0: not the same by column"),
    ],
)
def test_what_does_not_hold(cls: type[Handler], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_handler(cls, SAMPLE)
