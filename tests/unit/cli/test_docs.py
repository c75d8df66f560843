"""The reference page says what the commands say."""

from __future__ import annotations

from pathlib import Path

from vedur.cli.manual.commands import reference_page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def test_reference_page_is_current() -> None:
    assert PAGE.read_text() == reference_page(), (
        "run: python -m vedur.cli.manual.pages > docs/reference/commands.md"
    )
