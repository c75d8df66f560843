"""What the process that tasks are forked from leaves to them."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from vedur.pipeline.spark.task_process import forget_archives


def test_no_archive_is_listed_anew_by_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task begins with `invalidate_caches`, which reads every archive that is known."""
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("packed_one.py", "value = 1")
        out.writestr("packed_two.py", "value = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("packed_one").value == 1
    assert str(archive) in sys.path_importer_cache
    forget_archives()
    found = sys.path_importer_cache.values()
    assert not any(isinstance(finder, zipimport.zipimporter) for finder in found)
    importlib.invalidate_caches()
    assert importlib.import_module("packed_two").value == 2
