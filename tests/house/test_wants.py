"""A run says what it did without, and nothing in it is drawn alike each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fixtures import examples
from tests.fixtures.draw import FILES, draw
from tests.fixtures.pg import turn
from tests.fixtures.schedule import put_first, uses_session
from tests.fixtures.wants import ORACLES, SOURCES, summary, wanting

ROOT = Path(__file__).parents[2]
TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]


def test_a_skip_for_want_of_something_says_how_to_get_it() -> None:
    """Reasons of another kind are rare, and listed here."""
    other = {
        "tests/sql/test_trigger_parity.py",
        "tests/house/test_paths.py",
        "tests/integration/test_ops_admin.py",
    }
    plain = re.compile(
        r"""(?:pytest\.skip\(|importorskip\([^)]*?|skipif\([^)]*?reason=)f?["'][^)]*"""
    )
    for path in TESTS:
        name = str(path.relative_to(ROOT))
        for found in plain.findall(path.read_text("utf-8")):
            assert name in other or "wanting(" in found, f"{name}: {found}"


def test_the_summary_counts_and_names_the_command() -> None:
    reasons = [f"Skipped: {wanting(name)}" for name in ("zsh", "chromium", "zsh")]
    assert summary([*reasons, "Skipped: bulk capture has no sql format"]) == [
        "3 tests were skipped for want of:",
        "     2  zsh (make oracles)",
        "     1  chromium (make oracles)",
    ]
    assert summary([]) == []


def test_a_run_without_a_thing_ends_with_that_summary() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "zsh",
         "tests/unit/cli/test_completion.py"],
        cwd=ROOT, env={**os.environ, "PATH": str(Path(sys.executable).parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests were skipped for want of:\n" in done.stdout
    assert f"zsh ({ORACLES})" in done.stdout
    assert re.search(r"^seed \d+: make test SEED=\d+", done.stdout, re.M)


class Machine:
    """A PATH with a dpkg-query, an apt-get and an id of our own, which record what is asked."""

    def __init__(self, base: Path, uid: int, offered: str) -> None:
        self.base = base
        (base / "installed").write_text("pgqd\n")
        self._program("dpkg-query", 'for p; do :; done; grep -qx "$p" installed && echo installed')
        self._program("id", f"echo {uid}")
        self._program(
            "apt-get",
            f'echo "$*" >> asked; shift; for p; do case "$p" in -*) ;; *) case " {offered} " in\n'
            '*" $p "*) ;; *) exit 100;; esac;; esac; done\n'
            'for p; do case "$p" in -*) ;; *) echo "$p" >> installed;; esac; done',
        )

    def _program(self, name: str, body: str) -> None:
        path = self.base / name
        path.write_text(f"#!/bin/sh\ncd {self.base}\n{body}\n")
        path.chmod(0o755)

    def ensure(self, *packages: str) -> str:
        done = subprocess.run(
            [ROOT / "tools" / "ensure-packages", "tests", *packages],
            env={"PATH": f"{self.base}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and done.stderr == ""
        return done.stdout

    def asked(self) -> str:
        path = self.base / "asked"
        return path.read_text() if path.exists() else ""


def test_root_gets_what_is_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0, "zsh chromium")
    assert machine.ensure("pgqd", "zsh") == "installing Debian packages for tests: zsh\n"
    assert "install -y -qq --no-install-recommends zsh\n" in machine.asked()
    assert machine.ensure("pgqd", "zsh") == ""


def test_a_package_that_is_not_offered_keeps_none_away(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0, "zsh")
    said = machine.ensure("postgresql-15", "zsh").splitlines()
    assert said[0] == "installing Debian packages for tests: postgresql-15 zsh"
    assert said[1].startswith("missing, so tests that need them are left out: postgresql-15 (as")
    assert "zsh" in (tmp_path / "installed").read_text()


def test_others_are_told_the_command(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1000, "zsh")
    assert machine.ensure("pgqd", "zsh") == (
        "missing, so tests that need them are left out: zsh"
        " (as root: apt-get install --no-install-recommends zsh)\n"
    )
    assert machine.asked() == ""


def test_the_script_of_the_oracles_knows_all_that_tests_want() -> None:
    script = (ROOT / "tools" / "ensure-oracles").read_text()
    packages = {
        "PostgreSQL 15": "postgresql-15 ",
        "upstream's extensions": "postgresql-15-londiste-sql",
        "upstream's londiste": "python3-londiste",
        "upstream's pgqd": "pgqd",
    }
    for name, source in SOURCES.items():
        if source == ORACLES:
            assert packages.get(name, name) in script, name


def test_no_seed_is_fixed() -> None:
    assert settings.get_current_profile_name() == examples.PROFILE
    assert not settings.default.derandomize
    assert settings.default.print_blob and settings.default.database is not None
    fixed = re.compile(r"seed[= ]\d|@seed\(|derandomize=True")
    for path in (ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml", *TESTS):
        if "torture" not in path.parts and "tools" not in path.parts:
            assert not fixed.search(path.read_text("utf-8")), path


@pytest.mark.parametrize("seed", ["1", "2"])
def test_make_hands_one_seed_to_order_and_examples(seed: str) -> None:
    done = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "test", f"SEED={seed}", "VENV=/nowhere"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"seed={seed}; /nowhere/bin/pytest --randomly-seed=$seed --hypothesis-seed=$seed" in (
        done.stdout
    ), done.stderr


def test_each_version_has_its_turn_and_a_test_has_always_the_same() -> None:
    versions = [15, 16, 18]
    turns = [turn(f"tests/sql/test_x.py::test_{n}[pg]", versions) for n in range(300)]
    assert turns == [turn(f"tests/sql/test_x.py::test_{n}[pg]", versions) for n in range(300)]
    assert all(turns.count(version) > 60 for version in versions)


def test_what_make_test_leaves_out_for_its_version_is_left_to_make_test_long(
    request: pytest.FixtureRequest,
) -> None:
    for item in request.session.items:
        assert not (item.get_closest_marker("every_version") and item.get_closest_marker("long"))
    recipes = (ROOT / "Makefile").read_text()
    assert '-m "not long"' in recipes and '-m "long or hypothesis"' in recipes


def test_every_case_is_drawn_by_some_seed_and_a_seed_draws_the_same() -> None:
    names = [f"test_x[{n}]" for n in range(12)]
    drawn = [draw(names, 3, f"{seed} test_x") for seed in range(100)]
    assert drawn == [draw(names[::-1], 3, f"{seed} test_x") for seed in range(100)]
    assert {len(some) for some in drawn} == {3}
    assert set().union(*drawn) == set(names)
    assert draw(names, 20, "1") == set(names)


def test_a_run_has_as_many_cases_as_are_drawn_and_the_long_one_all(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(
        "import pytest\n"
        "@pytest.mark.draw(3)\n"
        "@pytest.mark.parametrize('n', range(9))\n"
        "def test_one(n): pass\n"
        "@pytest.mark.draw('browser')\n"
        "def test_this(): pass\n"
        "@pytest.mark.draw('browser')\n"
        "def test_that(): pass\n"
    )

    def run(which: str, profile: str, seed: int, factor: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", which, "-p", "tests.fixtures.draw",
             "-p", "pytest_randomly", "--collect-only", f"--randomly-seed={seed}",
             "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)],
            capture_output=True, text=True, check=False, cwd=ROOT,
            env={
                **os.environ, "VEDUR_EXAMPLES": profile, "VEDUR_DRAW": factor,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
        )  # fmt: skip
        return done.stdout

    first = run("not long", "quick", 1)
    assert (first.count("test_one["), first.count("test_th")) == (3, 1)
    rest = run("long", "quick", 1)  # a seed draws the same in each process
    assert (rest.count("test_one["), rest.count("test_th")) == (6, 1)
    assert not {x for x in first.split() if "::" in x} & set(rest.split())
    twice = run("not long", "quick", 1, factor="2")
    assert (twice.count("test_one["), twice.count("test_th")) == (6, 2)
    whole = run("long or hypothesis", "thorough", 2)
    assert (whole.count("test_one["), whole.count("test_th")) == (9, 2)


def test_files_of_which_some_tests_are_drawn_are_there() -> None:
    assert [file for file in FILES if not (ROOT / file).is_file()] == []


def test_the_schedule_knows_the_files_that_use_the_session(request: pytest.FixtureRequest) -> None:
    using = {
        str(item.path.relative_to(ROOT))
        for item in request.session.items
        if "spark" in getattr(item, "fixturenames", ())
    }
    assert [path for path in sorted(using) if not uses_session(path)] == []


def test_the_schedule_hands_out_files_of_one_kind_as_long_as_there_are_any() -> None:
    with_session, without = "tests/integration/test_repair.py", "tests/unit/test_log.py"
    queue = OrderedDict.fromkeys((without, with_session))
    put_first(queue, session=True)
    assert next(iter(queue)) == with_session
    put_first(queue, session=False)
    assert next(iter(queue)) == without
    del queue[without]
    put_first(queue, session=False)
    assert list(queue) == [with_session]


def test_make_lets_python_keep_what_it_compiles(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.mk"
    recipe.write_text(f"include {ROOT}/Makefile\nask:\n\t@echo [$$PYTHONDONTWRITEBYTECODE]\n")
    done = subprocess.run(
        ["make", "-s", "-f", str(recipe), "ask"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
