"""What a user's modules are made of: read once, and the same in every process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from vedur.tables import module_code
from vedur.tables.module_code import ModuleSource, changed_module, code_of, read_sources, using


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path; what was imported from it is forgotten."""
    before, current = set(sys.modules), dict(module_code._current)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    module_code._current.clear()
    module_code._current.update(current)


def write(place: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = place.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def load(name: str) -> Any:
    with using(read_sources([name])):
        return import_module(name)


def test_what_is_the_modules_own(place: Path) -> None:
    """What it imports from its package, or from beside it; also inside functions, and relative."""
    write(
        place,
        mc_one="import mc_two, os, pyarrow\nfrom vedur import names\nimport mc_missing\n",
        mc_two="def f():\n    from mc_pack import deep\n",
        mc_other="",
        mc_pack__init="",
        mc_pack__deep="from . import side\nfrom .side import value\nimport mc_one\n",
        mc_pack__side="value = 1\n",
        mc_pack__unused="",
    )
    (place / "mc_pack" / "init.py").rename(place / "mc_pack" / "__init__.py")
    names = [source.name for source in read_sources(["mc_one"])]
    assert names == ["mc_one", "mc_pack", "mc_pack.deep", "mc_pack.side", "mc_two"]
    of_package = [source.name for source in read_sources(["mc_pack.deep"])]
    assert of_package == ["mc_pack", "mc_pack.deep", "mc_pack.side"]  # mc_one is another's
    assert not any(name.startswith("mc_") for name in sys.modules), "reading imports nothing"
    (place / "some-1.0.dist-info").mkdir()  # others are installed there
    assert [source.name for source in read_sources(["mc_one"])] == ["mc_one"]
    assert read_sources(["vedur.names", "mc_missing", "os"]) == ()


def test_a_package_without_a_file_and_one_in_an_archive(place: Path, monkeypatch: Any) -> None:
    import zipfile

    write(place, mc_space__part="value = 'part'\n")
    with zipfile.ZipFile(place / "some.zip", "w") as archive:
        archive.writestr("mc_zip/__init__.py", "")
        archive.writestr("mc_zip/part.py", "value = 'zipped'\n")
    monkeypatch.syspath_prepend(str(place / "some.zip"))
    assert [s.name for s in read_sources(["mc_space.part"])] == ["mc_space", "mc_space.part"]
    assert load("mc_space.part").value == "part"
    assert [s.name for s in read_sources(["mc_zip.part"])] == ["mc_zip", "mc_zip.part"]
    assert load("mc_zip.part").value == "zipped"
    assert changed_module(read_sources(["mc_zip.part"])) is None


def install(place: Path, distribution: str, *files: str) -> None:
    """Write down which files a distribution has brought."""
    notes = place / f"{distribution}-1.0.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (notes / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_what_others_have_installed_in_a_shared_package(place: Path) -> None:
    """A namespace: what is not known to be another distribution's counts, as it always did."""
    module_code._owners.cache_clear()
    write(
        place,
        mc_shared__ours="from mc_shared import side, loose\nimport mc_shared.theirs\n",
        mc_shared__side="",
        mc_shared__loose="",
        mc_shared__theirs="import mc_shared.deeper\n",
        mc_shared__deeper="",
        mc_shared__own="from . import theirs, loose\n",
    )
    install(place, "ours", "mc_shared/ours.py", "mc_shared/side.py")
    install(place, "theirs", "mc_shared/theirs.py", "mc_shared/deeper.py")
    names = [source.name for source in read_sources(["mc_shared.ours"])]
    assert names == ["mc_shared", "mc_shared.loose", "mc_shared.ours", "mc_shared.side"]
    names = [source.name for source in read_sources(["mc_shared.theirs"])]
    assert names == ["mc_shared", "mc_shared.deeper", "mc_shared.theirs"]
    names = [source.name for source in read_sources(["mc_shared.own"])]  # of no distribution
    assert names == ["mc_shared", "mc_shared.loose", "mc_shared.own"]
    module = load("mc_shared.ours")
    assert module.mc_shared.theirs.__file__ == str(place / "mc_shared" / "theirs.py")
    (place / "mc_shared" / "__init__.py").write_text("")  # a package of one
    assert len(read_sources(["mc_shared.ours"])) == 6


def test_a_change_is_seen_and_a_comment_is_none(place: Path) -> None:
    write(place, mc_a="import mc_b\n", mc_b="value = 1\n")
    sources = read_sources(["mc_a"])
    write(place, mc_b="# a word\nvalue = 1\n")
    assert changed_module(sources) is None
    assert code_of(read_sources(["mc_a"])) == code_of(sources)
    write(place, mc_b="value = 2\n")
    assert changed_module(sources) == "mc_b"
    assert code_of(read_sources(["mc_a"])) != code_of(sources)
    (place / "mc_b.py").unlink()
    assert changed_module(sources) is None  # there is no other code


def test_a_module_is_made_of_what_was_read(place: Path) -> None:
    """Not of its file, which has been edited meanwhile, nor of compiled code of the same size and
    second, nor of what the process has loaded before."""
    text = "import mc_b\ndef look():\n    import mc_late\n    return mc_b.value, mc_late.value\n"
    write(place, mc_a=text, mc_b="value = 'old'\n", mc_late="value = 'old'\n")
    old = read_sources(["mc_a"])
    write(place, mc_b="value = 'new'\n", mc_late="value = 'new'\n")
    with using(old) as first:
        look = import_module("mc_a").look
    assert look() == ("old", "old")
    new = read_sources(["mc_a"])
    with using(new) as second:
        assert import_module("mc_a").look() == ("new", "new")
    with using(new) as third:
        assert import_module("mc_a").look() == ("new", "new")
    assert first != second == third
    with using(old):  # a plan that was made before
        assert import_module("mc_a").look() == ("old", "old")


def test_a_module_is_made_where_there_is_no_file(place: Path) -> None:
    """As on another machine."""
    write(place, mc_pack__init="value = 1\n", mc_pack__part="from . import value\n")
    (place / "mc_pack" / "init.py").rename(place / "mc_pack" / "__init__.py")
    sources = read_sources(["mc_pack.part"])
    for path in (place / "mc_pack").iterdir():
        path.unlink()
    (place / "mc_pack").rmdir()
    with using(sources):
        assert import_module("mc_pack.part").value == 1


def test_what_others_have_imported_stays_if_it_is_the_same(place: Path) -> None:
    write(place, mc_a="value = []\n")
    known = import_module("mc_a")
    assert load("mc_a") is known
    write(place, mc_a="value = [1]\n")
    assert load("mc_a") is not known and load("mc_a").value == [1]


def test_files_of_a_package_can_be_read(place: Path) -> None:
    write(
        place,
        mc_data____init__="",
        mc_data__code=(
            "import pkgutil\nfrom importlib import resources\n"
            "one = pkgutil.get_data(__package__, 'words.txt')\n"
            "two = resources.files(__package__).joinpath('words.txt').read_bytes()\n"
        ),
    )
    (place / "mc_data" / "words.txt").write_bytes(b"words")
    made = load("mc_data.code")
    assert (made.one, made.two) == (b"words", b"words")


def test_what_is_below_a_package_that_is_made_anew(place: Path) -> None:
    """A module that is in no plan, because its name is computed, is found again as well."""
    text = "import importlib\nimportlib.import_module('mc_up.below')\nimport mc_up\nvalue = {}"
    use = "\nfound = mc_up.below.number\n"
    write(place, mc_up____init__="", mc_up__top=text.format(1) + use, mc_up__below="number = 5\n")
    assert load("mc_up.top").found == 5
    write(place, mc_up__top=text.format(22) + use)
    made = load("mc_up.top")
    assert (made.value, made.found) == (22, 5)


def test_code_is_written_alike_by_every_version_of_python() -> None:
    text = "def f(b):\n    return f\"{b['mail']}\" or None  # why\n"
    assert code_of([ModuleSource("m", text)]) == (
        "m\nModule(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='b')]), "
        "body=[Return(value=BoolOp(op=Or(), values=[JoinedStr(values=[FormattedValue("
        "value=Subscript(value=Name(id='b', ctx=Load()), slice=Constant(value='mail'), "
        "ctx=Load()), conversion=-1)]), Constant()]))])])"
    )
