"""What the manual shows of handlers works as it stands there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.labs.handlers import UseHandlers, use_handlers
from tests.unit.handlers.test_registry import stored
from vedur.errors import UsageError
from vedur.handlers.registry import handler_attr, resolve
from vedur.handlers.testing import Sample, check_handler
from vedur.handlers.transform import Transform

__all__ = ["use_handlers"]

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```python file=(\w+)\.py\n(.*?)```", re.DOTALL)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The modules of write-a-handler.md."""
    text = (ROOT / "docs" / "how-to" / "write-a-handler.md").read_text("utf-8")
    files = dict(BLOCK.findall(text))
    assert set(files) == {"mask_mail", "own_handlers", "test_own"}
    for name, body in files.items():
        (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield {name: import_module(name) for name in files}
    for name in files:
        sys.modules.pop(name, None)


def test_the_examples_of_the_page(page: dict[str, Any], use_handlers: UseHandlers) -> None:
    page["test_own"].test_hide()
    use_handlers(handler_modules=("own_handlers",))
    with pytest.raises(UsageError, match='needs argument "code"'):
        handler_attr("region", [])
    text = handler_attr("region", ["code=o'eu"])
    found = resolve(stored(text))
    assert found is not None and found.scope.condition == "\"region\" = 'o''eu'"


def test_the_example_is_that_of_the_page(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": str(n), "mail": mail, "password": "x"} for n, mail in
            enumerate(["ann@x.is", None, "no address", "a@b@c"])]  # fmt: skip
    sample = Sample("public.users", ("id",), rows)
    of_page = check_handler(Transform, sample, {"function": "mask_mail:hide"})
    del sys.modules["mask_mail"]
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "handlers"))
    assert check_handler(Transform, sample, {"function": "mask_mail:hide"}) == of_page
    example = import_module("mask_mail")
    assert example.__doc__ and "examples" in str(example.__file__)
    assert [row and row["mail"] for row in of_page][:2] == ["someone@x.is", None]
    assert isinstance(example.hide(pa.RecordBatch.from_pydict({"id": ["1"]})), pa.RecordBatch)
