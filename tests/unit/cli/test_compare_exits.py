"""Exit codes of compare and check say one thing each."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedur.cli.main import main
from vedur.errors import LaggingError
from vedur.ops.compare import CompareResult, TableResult


def result(equal: int = 0, different: int = 0, unproven: int = 0, **more: object) -> CompareResult:
    tables = [TableResult(f"e{i}", f"e{i}", match=True) for i in range(equal)]
    tables += [TableResult(f"d{i}", f"d{i}") for i in range(different)]
    tables += [TableResult(f"n{i}", f"n{i}", compared=False, reason="why") for i in range(unproven)]
    return CompareResult(tuple(tables), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (result(equal=3), 0),
        (result(), 100),  # nothing was compared: that proves nothing
        (result(equal=1, different=1), 1),
        (result(different=3), 3),
        (result(different=3, unproven=2, lagging=True), 3),  # a difference is certain
        (result(different=500), 99),
        (result(equal=5, unproven=1), 100),
        (result(equal=5, unproven=1, lagging=True), 107),
    ],
)
def test_exit_codes(found: CompareResult, code: int) -> None:
    assert found.exit_code == code


def test_a_table_that_is_compared_in_part_is_not_equal() -> None:
    part = TableResult("t", "t", match=True, reason="not compared, exist on one side only: x")
    worse = TableResult("t", "t", match=False, reason="not compared, exist on one side only: x")
    assert CompareResult((part,)).exit_code == 100
    assert CompareResult((worse,)).exit_code == 1
    assert part.as_json()["status"] == "not proven"


def test_the_last_line() -> None:
    assert result(equal=1).summary() == "Compared 1 table: 1 equal"
    assert result(equal=2).summary(counted=True) == (
        "Compared 2 tables: 2 with equal numbers of rows"
    )
    assert result(1, 1, 1, elsewhere=1).summary() == (
        "Compared 3 tables: 1 equal, 1 different (d0), 1 not proven equal (n0); "
        "1 table of the set not on this node"
    )
    many = result(different=12).summary()
    assert many.endswith("d8, d9 and 2 more)")


def test_errors_are_told_from_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 to 99 are tables that differ, so a command that fails has other codes."""
    ini = tmp_path / "x.ini"
    ini.write_text(
        "[londiste3]\njob_name = x\ndb = dbname=x\nqueue_name = q\nlock_timeout = soon\n"
    )
    for command in ("compare", "check"):
        assert main("londiste3", [str(ini), command, "--nonsense"]) == 101
        assert main("londiste3", [str(ini), command]) == 102
        assert main("londiste3", [str(tmp_path / "none.ini"), command]) == 102
    assert main("londiste3", [str(ini), "repair", "--nonsense"]) == 1
    assert main("londiste3", [str(ini), "repair"]) == 2
    assert LaggingError.exit_code == 7
    capsys.readouterr()
