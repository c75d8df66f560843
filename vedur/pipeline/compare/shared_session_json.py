"""A comparison's values as JSON and back. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vedur.pipeline.compare.differing_rows import Difference, Differences
from vedur.pipeline.compare.model import Buckets, Pair, Piece, Side, Sums

Json = dict[str, Any]


def pair_to_json(pair: Pair) -> Json:
    """All of it, connect strings included: for a socket that nobody else can read."""
    return asdict(pair)


def pair_from_json(said: Json) -> Pair:
    """The pair again."""
    sides = {name: _side(said[name]) for name in ("source", "target")}
    return Pair(**{**_tuples(said), **sides})


def _side(said: Json) -> Side:
    pieces = tuple(Piece(**piece) for piece in said["pieces"])
    return Side(**{**_tuples(said), "pieces": pieces})


def _tuples(said: Json) -> Json:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in said.items()}


def sums_from_json(said: Json) -> Sums:
    """Sums again."""
    return Sums(**said)


def buckets_from_json(said: Json) -> Buckets:
    """Buckets again."""
    return Buckets(said["mask"], Sums(**said["source"]), Sums(**said["target"]), tuple(said["bad"]))


def differences_from_json(said: Json) -> Differences:
    """Differences again."""
    rows = tuple(Difference(r["kind"], r["key"], tuple(r["columns"])) for r in said["rows"])
    return Differences(said["missing"], said["extra"], said["different"], rows)
