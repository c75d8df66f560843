"""The ini files that a command line names: files, and directories of them."""

from __future__ import annotations

import configparser
from collections.abc import Iterable
from pathlib import Path

from vedur.errors import ConfigError


def find_inis(words: Iterable[str]) -> list[str]:
    """Return the files; a directory stands for its `*.ini`, in the order of their names.

    Ini files of the ticker may lie beside them and are passed over. Raises `ConfigError` for a
    directory without any.
    """
    found: list[str] = []
    for word in words:
        found += _inside(Path(word)) if Path(word).is_dir() else [word]
    return found


def _inside(directory: Path) -> list[str]:
    try:
        names = sorted(path for path in directory.glob("*.ini") if not path.name.startswith("."))
    except OSError as error:
        raise ConfigError(f'cannot read directory "{directory}": {error.strerror}') from error
    found = [str(path) for path in names if not _is_tickers(path)]
    if not found:
        raise ConfigError(f'directory "{directory}" has no ini file of a node (*.ini)')
    return found


def _is_tickers(path: Path) -> bool:
    """Tell whether a file has the section of pgqd and none of a node; one that cannot be read is
    for the reader to complain about."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return False
    sections = set(parser.sections())
    return "pgqd" in sections and not sections & {"londiste3", "londiste", "vedur"}
