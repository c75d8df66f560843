"""Watches the demo's set from a thread and shows it on the terminal, below what is told.

Where there is no terminal nothing is watched, and what is told stays a plain log. A look that
fails is no news: servers of this demo come and go.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live

from vedur.clock import SYSTEM, Clock
from vedur.config import load_londiste
from vedur.demo.view import Sample, Scene, Stage, copying, counted, frame
from vedur.errors import VedurError
from vedur.status.overview import Overview, SetReader, open_reader
from vedur.threads import Thread

#: Seconds between looks; pictures are drawn more often, for the seconds of the stage.
EVERY = 0.5
_FRAMES = 4
#: Seconds between samples of the rates, and how many are kept.
_SAMPLE = 1.0
_SAMPLES = 60


class Watch:
    """The view of one demo. `on_scene` is told of each look, for who takes pictures."""

    def __init__(
        self,
        console: Console,
        *,
        on_scene: Callable[[Scene], None] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.console = console
        self.clock = clock
        # not console.is_terminal: FORCE_COLOR makes that true of a file, too
        self.live = console.file.isatty()
        self.wanted = self.live or on_scene is not None
        self._on_scene = on_scene
        self._scene = Scene(Stage(0, 0, ""))
        self._began = clock.monotonic()
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._reader: SetReader | None = None
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._live = Live(
            console=console,
            get_renderable=self._frame,
            refresh_per_second=_FRAMES,
            transient=True,
        )

    def __enter__(self) -> Watch:
        if self.live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self.live:
            self._live.stop()
        if self._thread is not None:
            self._thread.join(timeout=5)
        if self._reader is not None:
            self._reader.close()

    def stage(self, stage: Stage) -> None:
        """Begin a new stage."""
        with self._lock:
            self._began = self.clock.monotonic()
            self._scene = replace(self._scene, stage=stage, copied=frozenset())

    def follow(self, ini: Path, page: str) -> None:
        """Start reading the set, through the node of an ini."""
        with self._lock:
            self._scene = replace(self._scene, page=page)
        if not self.wanted or self._thread is not None:
            return
        self._reader = open_reader(load_londiste(str(ini), {}), "demo")
        self._reader.leave_alone = 0.0
        self._thread = Thread(target=self._watch, name="vedur-demo-view", daemon=True)
        self._thread.start()

    @property
    def scene(self) -> Scene:
        """Return what is known now."""
        seconds = self.clock.monotonic() - self._began
        return replace(self._scene, stage=replace(self._scene.stage, seconds=seconds))

    def _frame(self) -> RenderableType:
        return frame(self.scene)

    def _watch(self) -> None:
        assert self._reader is not None
        while not self.clock.wait(self._end, EVERY):
            try:
                overview = self._reader.read()
            except VedurError:
                continue
            self._take(overview)

    def _take(self, overview: Overview) -> None:
        found = {node.name: node.worker for node in overview.nodes if node.worker}
        now = self.clock.monotonic()
        if not self._samples or now - self._samples[-1].at >= _SAMPLE:
            self._samples.append(counted(overview, now))
        with self._lock:
            scene = self._scene
            self._scene = replace(
                scene,
                overview=overview,
                samples=tuple(self._samples),
                copied=scene.copied | copying(overview),
                workers=tuple((dict(scene.workers) | found).items()),
            )
        if self._on_scene:
            self._on_scene(self.scene)
