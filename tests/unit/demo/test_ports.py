"""Ports for servers that are stopped and started again."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from vedur.demo import server
from vedur.demo.server import free_port


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("32768\t60999\n", 10_240, 32_768),
        ("10241\t65535\n", 10_240, 10_241),
        ("1024\t65535\n", 1024, 65_536),  # there are no others
        (None, 1024, 65_536),
    ],
)
def test_no_connection_gets_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, low: int, high: int
) -> None:
    place = tmp_path / "range"
    if text is not None:
        place.write_text(text)
    monkeypatch.setattr(server, "_CONNECTIONS", place)
    assert low <= free_port() < high


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        (tmp_path / "range").write_text(f"{port + 1} 65535")
        monkeypatch.setattr(server, "_CONNECTIONS", tmp_path / "range")
        monkeypatch.setattr(server, "_LOWEST_PORT", port)
        assert free_port() != port


def test_processes_with_one_seed_get_different_ones() -> None:
    drawn = []
    for _ in range(3):
        random.seed(1)
        drawn.append(free_port())
    assert len(set(drawn)) > 1
