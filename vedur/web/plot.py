"""The history of lag as a picture: lines within axes, in the units of an SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from vedur.web import words
from vedur.web.source import Sample, names

WIDTH, HEIGHT = 1000, 180
#: The numbers stand at the right, where the present is.
LEFT, RIGHT, TOP, BOTTOM = 4, 56, 10, 26
#: Samples that lie closer than this become one point, the highest.
_STEP = 3.0
_DAY = 86400.0
#: Steps of the axis of seconds: tenths, seconds, minutes, hours, days.
_STEPS = (
    *(0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 4 * 3600.0, 6 * 3600.0, 12 * 3600.0, _DAY, 2 * _DAY, 5 * _DAY, 10 * _DAY),
)
#: Lines that can be told apart; further nodes share them.
STYLES = 6
#: Samples further apart than this are not joined: the page was not looking.
_GAP = timedelta(seconds=60)


@dataclass(frozen=True)
class Mark:
    """A place on an axis with its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Curve:
    """One node's lag."""

    name: str
    style: int
    path: str
    last: str
    highest: str


@dataclass(frozen=True)
class Plot:
    """Axes and lines; no curves while there is too little to draw."""

    x_marks: tuple[Mark, ...]
    y_marks: tuple[Mark, ...]
    curves: tuple[Curve, ...]
    words: str


def draw(samples: Sequence[Sample]) -> Plot:
    """Draw a history as SVG."""
    if len(samples) < 2:
        return Plot((), (), (), "no history yet")
    first, last = samples[0].at, samples[-1].at
    span = max((last - first).total_seconds(), 1.0)
    known = [lag for sample in samples for lag in sample.lags.values() if lag is not None]
    step, top = scale(max(known, default=0.0))

    def x(at: datetime) -> float:
        share = (at - first).total_seconds() / span
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(lag: float) -> float:
        return TOP + (1 - lag / top) * (HEIGHT - TOP - BOTTOM)

    curves = []
    for at, name in enumerate(names(samples)):
        points = [(s.at, x(s.at), s.lags.get(name)) for s in samples]
        values = [lag for _, _, lag in points if lag is not None]
        path = _path([(when, px, None if lag is None else y(lag)) for when, px, lag in points])
        newest = samples[-1].lags.get(name)
        highest = words.seconds(max(values)) if values else words.UNKNOWN
        curves.append(Curve(name, at % STYLES, path, words.seconds(newest), highest))
    y_marks = [
        Mark(round(y(n * step), 1), words.seconds(n * step)) for n in range(round(top / step) + 1)
    ]
    x_marks = [
        Mark(round(x(first + timedelta(seconds=span * n / 4)), 1), _time(first, span * n / 4, span))
        for n in range(5)
    ]
    caption = "; ".join(f"{c.name}: now {c.last}, highest {c.highest}" for c in curves)
    return Plot(tuple(x_marks), tuple(y_marks), tuple(curves), caption)


def scale(highest: float) -> tuple[float, float]:
    """Choose a round step of time and the top of the axis, three to six steps up."""
    highest = max(highest, 1.0)
    step = next((step for step in _STEPS if step * 5 >= highest), None)
    if step is None:
        step = _DAY * 10 ** math.ceil(math.log10(highest / 5 / _DAY))
    return step, step * math.ceil(highest / step)


def _time(first: datetime, seconds: float, span: float) -> str:
    form = "%H:%M:%S" if span < 600 else "%H:%M"
    return f"{first + timedelta(seconds=seconds):{form}}"


def _path(points: Sequence[tuple[datetime, float, float | None]]) -> str:
    """Make an SVG path with gaps where a value is unknown. Points at one place become one."""
    out: list[str] = []
    before: tuple[datetime, float] | None = None
    for when, px, py in points:
        if py is None:
            before = None
            continue
        if before is None or when - before[0] > _GAP:
            out.append(f"M{px:.1f} {py:.1f}")
        elif px - before[1] < _STEP and out and out[-1].startswith("L"):
            # y grows downwards: the smaller one is the higher lag
            old = float(out[-1].split()[1])
            out[-1] = f"L{px:.1f} {min(old, py):.1f}"
            before = (when, before[1])
            continue
        else:
            out.append(f"L{px:.1f} {py:.1f}")
        before = (when, px)
    return "".join(out)
