"""Pictures of the status page and outputs for the manual, of a real set under load.

`python -m tools.screenshots [docs]` runs the demo's cascade (two servers with tickers, workers of
root, branch and leaf on Spark), holds the leaf back for a while so that there is lag to see, lets
chromium take the pictures, plants a fault and puts what `doctor` says, and a line of a log, into
`how-to/operate.md`. About four minutes.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from vedur.cli.manual.pages import filled
from vedur.clock import SYSTEM
from vedur.demo.lab import Lab
from vedur.demo.server import free_port
from vedur.demo.story import LEAF, PART, PART_OWNER, ROOT, Story

CHROMIUM = "/usr/bin/chromium"

#: Name, address, scheme, width, scale.
PICTURES = (
    ("page-light", "/", "light", 1120, 1),
    ("page-dark", "/", "dark", 1120, 1),
    ("page-phone", "/", "light", 390, 2),
    ("page-node", f"/nodes/{LEAF}", "light", 1120, 1),
    ("page-root", f"/nodes/{ROOT}", "dark", 1120, 1),
)


class PageLab(Lab):
    """The root's worker serves the page."""

    port = free_port()

    def worker_ini(
        self, name: str, connstr: str, extra: Mapping[str, str] | None = None, spark: str = ""
    ) -> Path:
        more = {"web_port": str(self.port), "web_max_lag": "30"} if name == ROOT else {}
        if name == PART:
            more = {"log_format": "json"}
        one_core = "[spark]\nspark.master = local[1]\n"
        return super().worker_ini(name, connstr, {**(extra or {}), **more}, spark or one_core)


def main(docs: Path) -> None:
    """Take all pictures, then the outputs."""
    directory = docs / "images"
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and workers must not stay
    story = Story(Console(stderr=True), fast=True, cascade=True)
    story.lab.close()
    story.lab = lab = PageLab()
    story.seconds = 20
    try:
        story.start_servers()
        story.create_nodes()
        story.add_tables()
        story.second_leaf()
        story._finish_load(story._start_load())
        lab.londiste(PART, "pause")
        story._finish_load(story._start_load())
        lab.londiste(PART, "resume")
        story._finish_load(story._start_load())
        load = story._start_load()
        lab.londiste(PART, "pause")
        SYSTEM.sleep(10)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            take(browser, f"http://127.0.0.1:{lab.port}", directory)
            browser.close()
        story._finish_load(load)
        record(story, docs / "how-to" / "operate.md")
    finally:
        lab.close()


def record(story: Story, page: Path) -> None:
    """Record doctor's output on the paused leaf whose table lacks a key, and a line of its log."""
    lab = story.lab
    fault = "alter table user_session1 drop constraint pk_user_session"
    lab.psql("leaf", "digoal_02", fault, user=PART_OWNER)
    said = lab.londiste(PART, "doctor", check=False).stdout
    said = said.replace(f"{lab.base}/ini", "/etc/vedur")  # not where this laboratory happened to be
    counted = [line for line in lab.log_text(PART).splitlines() if "count:" in line]
    parts = {
        "doctor": f"```text\n$ vedur {PART}.ini doctor\n{said}```\n",
        "json": f"```json\n{counted[-1]}\n```\n",
    }
    page.write_text(filled(page.read_text("utf-8"), parts), "utf-8")


def take(browser: Browser, base: str, directory: Path) -> None:
    """Take all pictures."""
    for name, path, scheme, width, scale in PICTURES:
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 700},
            device_scale_factor=scale,
        )
        page = context.new_page()
        page.goto(base + path)
        page.screenshot(path=directory / f"{name}.png", full_page=True)
        context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("docs", nargs="?", type=Path, default=Path("docs"), help="the manual")
    main(parser.parse_args().docs)
