"""The page in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.wants import wanting
from tests.labs.status_page import QUEUE, Browser, SetLab
from vedur.node.state import set_consumer_error

PROGRAM = Path("/usr/bin/chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason=wanting("chromium")),
]

OpenPage = Callable[..., Browser]
PAGES = ("/", "/nodes/src", "/nodes/dst", "/nodes/eu")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason=wanting("playwright"))
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(PROGRAM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def address(lab: SetLab, open_page: OpenPage) -> str:
    """The page of a set where every part has something to show."""
    fill(lab)
    page = open_page(lab.sessions["src"])
    for _ in range(3):
        page.page.source._looked = None
        page.page.source.sample()
    return page.page.server.address


def fill(lab: SetLab) -> None:
    lab.dbs["src"].execute("insert into shop.orders select i, 'x' from generate_series(1, 300) i")
    tick = lab.tick()
    lab.applied("dst", tick)
    for number in range(30):
        lab.log_batch("dst", number, number + 1, 100 * number + 1, 0.2, 0.1, 0.01, 0.001)
    lab.dbs["dst"].execute(
        "insert into vedur.copy_progress (queue_name, table_name, dest_table, step, step_name, "
        "slices, slices_done, rows_estimated, rows_done, bytes_done) "
        "values ('replika', 'shop.lines', 'shop.lines', 4, 'load', 16, 7, 1000, 450, 9800)"
    )
    lab.dbs["dst"].execute("update pgq_node.local_state set paused = true")
    set_consumer_error(lab.dbs["eu"], QUEUE, lab.worker("eu"), "division by zero " + "long " * 60)


@pytest.mark.draw("browser")
def test_it_is_accessible_in_light_and_dark(chromium: Any, address: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason=wanting("axe-playwright-python")
    ).Axe()
    for scheme in ("light", "dark"):
        # axe brings a script of its own
        context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        for path in PAGES:
            page.goto(address.rstrip("/") + path)
            found = axe.run(page)
            assert found.response["passes"], "axe did not look at anything"
            assert found.violations_count == 0, found.generate_report()
        context.close()


@pytest.mark.draw("browser")
def test_a_phone_needs_no_sideways_scrolling(chromium: Any, address: str) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740}, is_mobile=True)
    page = context.new_page()
    for path in PAGES:
        page.goto(address.rstrip("/") + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        # what is wider than the screen scrolls by itself, and can be reached by the keyboard
        boxes = page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter("
            "b => b.scrollWidth > b.clientWidth && b.tabIndex !== 0).length"
        )
        assert boxes == 0
    context.close()


@pytest.mark.draw("browser")
def test_it_refreshes_in_place(chromium: Any, lab: SetLab, open_page: OpenPage) -> None:
    fill(lab)
    running = open_page(lab.sessions["src"])
    context = chromium.new_context()
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    loads: list[str] = []
    page.on("load", lambda: loads.append(page.url))
    page.goto(running.page.server.address)
    assert page.get_by_role("heading", name="Queue replika", level=1).is_visible()
    assert page.get_by_text("division by zero").is_visible()
    focus = page.get_by_role("main").get_by_role("link", name="dst", exact=True).first
    focus.focus()
    set_consumer_error(lab.dbs["eu"], QUEUE, lab.worker("eu"), None)
    page.get_by_text("division by zero").wait_for(state="hidden", timeout=60_000)
    page.wait_for_function("document.documentElement.dataset.refreshed")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/nodes/dst"
    assert loads == [running.page.server.address]
    assert complaints == []
    # the page goes away: the reader is told
    running.page.server.stop()
    page.get_by_text("what you see is old").wait_for(timeout=60_000)
    context.close()


@pytest.mark.draw("browser")
def test_without_scripts_it_is_whole_and_loads_itself_again(chromium: Any, address: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.get_by_role("heading", name="Topology").is_visible()
    assert page.locator("table tbody tr").count() >= 3
    assert page.locator("svg.plot path.curve").count() == 2
    assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == "15"
    page.get_by_role("link", name="stop refreshing").click()
    assert page.locator("meta[http-equiv=refresh]").count() == 0
    page.get_by_role("navigation").get_by_role("link", name="eu").click()
    assert page.get_by_role("heading", name="Node eu").is_visible()
    context.close()
