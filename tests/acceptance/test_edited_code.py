"""The code of a transform is edited while a worker runs, and the operator does what is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.pg import VERSIONS
from tests.fixtures.place import new_place
from vedur import db as vdb
from vedur.demo.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.draw("programs")]

ROOT, LEAF = "src", "dst"
MODULE = """
import pyarrow.compute as pc

def hide(batch):
    at = batch.schema.get_field_index("mail")
    return batch.set_column(at, "mail", pc.binary_join_element_wise(batch["mail"], "{}", "-"))

hide.rewrites = ("mail",)
hide.filters = False
"""


class Site:
    """A leaf whose table has a transform of a module in `place`."""

    def __init__(self, lab: Lab, place: Path) -> None:
        self.lab, self.place = lab, place
        self.edit("one")
        binaries = VERSIONS[max(VERSIONS)]
        lab.server("root", binaries)
        for name in ("source", "target"):
            lab.database("root", name, "shop")
            table = "create table shop.cards (id int primary key, mail text)"
            lab.psql("root", name, table, user="shop")
        self.root, self.leaf = (lab.servers["root"].connstr(n) for n in ("source", "target"))
        lab.worker_ini(ROOT, self.root)
        spark = "[spark]\nspark.master = local[2]\n"
        lab.worker_ini(LEAF, self.leaf, {"exception_sleep": "0.5"}, spark)
        lab.ticker_ini("root")
        lab.londiste(ROOT, "create-root", ROOT, self.root)
        lab.londiste(LEAF, "create-leaf", LEAF, self.leaf, f"--provider={self.root}")
        lab.start_ticker()
        lab.start_worker(ROOT)
        lab.start_worker(LEAF)
        self.insert(1)
        lab.londiste(ROOT, "add-table", "shop.cards")
        lab.londiste(LEAF, "add-table", "shop.cards", "--transform=edited_mask:hide")
        lab.londiste(LEAF, "wait-sync", timeout=240)

    def edit(self, word: str) -> None:
        (self.place / "edited_mask.py").write_text(MODULE.format(word))

    def insert(self, key: int) -> None:
        self.lab.psql("root", "source", f"insert into shop.cards values ({key}, 'a')", user="shop")

    def wait_for_log(self, words: str, since: int) -> None:
        self.lab.wait(lambda: words in self.lab.log_text(LEAF)[since:], words, 120.0)

    def rows(self) -> list[str]:
        with vdb.connect(self.leaf) as db:
            return [row.mail for row in db.query("select mail from shop.cards order by id")]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lab = Lab(new_place("vedur-lab-"))
    try:
        yield Site(lab, tmp_path)
    finally:
        lab.close()


def test_no_row_of_other_code_and_the_remedy_is_one(site: Site) -> None:
    lab = site.lab
    site.insert(2)
    lab.londiste(LEAF, "wait-root", timeout=240)
    assert site.rows() == ["a-one", "a-one"]

    site.edit("two")  # of the same size
    since = len(lab.log_text(LEAF))
    site.insert(3)
    site.wait_for_log('the code of module "edited_mask" has changed', since)
    lab.londiste(LEAF, "resync", "shop.cards")
    since = len(lab.log_text(LEAF))
    site.wait_for_log("has changed since this process has read it", since)
    assert site.rows() == ["a-one", "a-one"]
    lab.run("londiste3", "-r", str(lab.inis[LEAF]))
    lab.londiste(LEAF, "wait-sync", timeout=240)
    site.insert(4)
    lab.londiste(LEAF, "wait-root", timeout=240)
    assert site.rows() == ["a-two"] * 4, "task processes that had the old code made these"

    site.edit("six")
    since = len(lab.log_text(LEAF))
    lab.run("londiste3", "-r", str(lab.inis[LEAF]))
    site.wait_for_log("not what its rows were made with", since)
    lab.londiste(LEAF, "resync", "shop.cards")
    lab.londiste(LEAF, "wait-sync", timeout=240)
    site.insert(5)
    lab.londiste(LEAF, "wait-root", timeout=240)
    assert site.rows() == ["a-six"] * 5
    assert lab.londiste(LEAF, "compare", timeout=240).returncode == 0
