"""The Python source of the modules that users' handlers are made of, the same everywhere.

Files change while processes live, and machines of a cluster may have other ones. So the source is
read where a handler is asked for, and goes with it: what tells whether the code has changed, and
what tasks on any machine make the modules of, is that text and never what a file, a cache of
compiled code or an older process has under the same name.

The modules are those that are asked for and what they import, at any place in their text, of their
own package; where one is a file of its own, also what lies beside it. Not among them are modules
that are imported by a computed name, other installed packages, and what is not Python. Of a package
that several installed distributions share (a namespace), what others have installed is not theirs.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import distributions
from importlib.readers import FileReader
from pathlib import Path
from typing import Any, cast
from zipimport import zipimporter

from vedur.clock import SYSTEM

#: Directories with such a name hold packages that have nothing to do with each other.
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class ModuleSource:
    """The text of a module; `path` is where it was read, which may be another machine."""

    name: str
    text: str = field(repr=False)
    is_package: bool = False
    path: str = field(default="", compare=False)


# -- reading ----------------------------------------------------------------------------------


def read_sources(names: Iterable[str]) -> tuple[ModuleSource, ...]:
    """Read these modules from their files, and what they import of their own; imports nothing.

    What is not there, or not Python, is left out: who imports it will notice.
    """
    found: dict[str, ModuleSource] = {}
    for name in names:
        top = name.partition(".")[0]
        _collect(name, top, _place_beside(top), found)
    return tuple(found[name] for name in sorted(found))


def code_of(sources: Sequence[ModuleSource]) -> str:
    """Return the code of these modules as Python reads it: without comments, and in a form that
    does not depend on its version."""
    return "\n".join(f"{source.name}\n{_without_comments(source.text)}" for source in sources)


def changed_module(sources: Sequence[ModuleSource]) -> str | None:
    """Return the first of these modules whose file has other code now; a file that is gone, or
    cannot be read, has none. Looks at the file again only where its times or size differ."""
    for source in sources:
        text = _read_file(source.path) if source.path else None
        if text is None or text == source.text:
            continue
        if _without_comments(text) != _without_comments(source.text):
            return source.name
    return None


def _collect(name: str, top: str, place: str, found: dict[str, ModuleSource]) -> None:
    left, seen = [name], set(found)
    owners = _owners(top) if _is_namespace(top) else {}
    own = owners.get(_real_path(_read_module(name)), frozenset())
    while left:
        words = left.pop().split(".")
        for count in range(1, len(words) + 1):
            each = ".".join(words[:count])
            if each in seen or not _belongs(words[0], top, place):
                continue
            seen.add(each)
            source = _read_module(each)
            others = owners.get(_real_path(source), own)
            if source is not None and (others == own or others & own):
                found[each] = source
                left += _imported(source)


def _is_namespace(top: str) -> bool:
    """Is it a package without a file of its own, in which several distributions may lie?"""
    spec = _find(top)
    places = spec.submodule_search_locations if spec is not None else None
    return any(not Path(place, "__init__.py").exists() for place in places or ())


@lru_cache(maxsize=64)
def _owners(top: str) -> dict[str, frozenset[str]]:
    """Read which installed distributions say that they have brought which files of a package."""
    found: dict[str, frozenset[str]] = {}
    for distribution in distributions():
        if f"{top}/" not in (distribution.read_text("RECORD") or ""):
            continue
        for file in distribution.files or ():
            if file.parts[0] == top:
                path = os.path.realpath(str(distribution.locate_file(file)))
                found[path] = found.get(path, frozenset()) | {distribution.metadata["Name"]}
    return found


def _real_path(source: ModuleSource | None) -> str:
    return os.path.realpath(source.path) if source is not None and source.path else ""


def _belongs(top: str, asked: str, place: str) -> bool:
    if top == "vedur" or top in sys.stdlib_module_names:
        return False
    if top == asked or not place:
        return top == asked
    spec = _find(top)
    return spec is not None and _directory(spec) == place


def _place_beside(top: str) -> str:
    """Return the directory of a module that is a file of its own, unless others are installed
    there; else nothing."""
    spec = _find(top)
    if spec is None or spec.submodule_search_locations is not None:
        return ""
    place = _directory(spec)
    if not place or _INSTALLED & set(Path(place).parts) or any(Path(place).glob("*.dist-info")):
        return ""
    return place


def _directory(spec: ModuleSpec) -> str:
    """Return where a top module or package lies."""
    places = spec.submodule_search_locations
    place = Path(next(iter(places)) if places else spec.origin or "").parent
    return str(place) if place.is_dir() else ""


def _find(name: str) -> ModuleSpec | None:
    """Find a module without importing it, or its package."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    parent, path = name.rpartition(".")[0], None
    if parent:
        above = _find(parent)
        path = above.submodule_search_locations if above is not None else None
        if path is None:
            return None
    for finder in sys.meta_path:
        spec = None if isinstance(finder, _Finder) else finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


def _read_module(name: str) -> ModuleSource | None:
    spec = _find(name)
    if spec is None:
        return None
    places = spec.submodule_search_locations
    if places and (spec.origin is None or isinstance(spec.loader, _Loader)):
        path = str(Path(next(iter(places)), "__init__.py"))
        return ModuleSource(name, _read_file(path) or "", True, path)  # without a file: a namespace
    origin = spec.origin or ""
    text = _read_file(origin) if origin.endswith(".py") else None
    loader: Any = spec.loader
    if text is None and origin.endswith(".py") and isinstance(loader, zipimporter):
        try:
            text = loader.get_source(name)
        except (ImportError, UnicodeDecodeError):
            return None
    return None if text is None else ModuleSource(name, text, places is not None, origin)


#: What was read of a file, and the state that it was in.
_files: dict[str, tuple[tuple[int, ...], str]] = {}
#: Seconds in which a file may be written twice and keep its times.
_SAME_TIMES = 2.0


def _read_file(path: str) -> str | None:
    try:
        now = Path(path).stat()
        state = (now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino)
        known = _files.get(path)
        if known is not None and known[0] == state:
            return known[1]
        text = importlib.util.decode_source(Path(path).read_bytes())
        if SYSTEM.now().timestamp() - now.st_ctime > _SAME_TIMES:
            _files[path] = state, text  # the older state: a change between the two is noticed
        return text
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


@lru_cache(maxsize=1024)
def _without_comments(text: str) -> str:
    try:
        return _write(ast.parse(text))
    except (SyntaxError, ValueError):
        return text


def _write(node: object) -> str:
    """Write a piece of a syntax tree, the same in every version of Python: `ast.unparse` and
    `ast.dump` change their forms, and a field that came with a later version is empty for code that
    an earlier one can read."""
    if isinstance(node, list):
        return f"[{', '.join(map(_write, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    filled = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"{type(node).__name__}({', '.join(f'{n}={_write(v)}' for n, v in filled)})"


@lru_cache(maxsize=1024)
def _imported(source: ModuleSource) -> tuple[str, ...]:
    """Return the names that a module may import; some are no modules."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError):
        return ()
    package = source.name if source.is_package else source.name.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            names += [f"{base}.{alias.name}" for alias in node.names if base]
    return tuple(names)


# -- running ----------------------------------------------------------------------------------

_lock = threading.RLock()
#: What modules of this process are made of, by name.
_current: dict[str, ModuleSource] = {}
_generation = 0


@contextmanager
def using(sources: Sequence[ModuleSource]) -> Iterator[int]:
    """Have modules made of these texts where they are imported, until others are asked for.

    Where this process has made them of other ones, or has imported them of another file, all such
    modules are forgotten: one of them may refer to another. Yields a number that differs from then
    on; what was made of the modules before must not be used any more.
    """
    with _lock:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        if not all(_is_current(source) for source in sources):
            _forget(sources)
        for source in sources:
            _current[source.name] = source
        yield _generation


def _is_current(source: ModuleSource) -> bool:
    known = _current.get(source.name)
    if known is not None:
        return known == source
    if source.name not in sys.modules:
        return True
    imported = _read_module(source.name)  # by others: made of what its file has now, as far as
    return imported is None or imported.text == source.text  # anybody can tell


def _forget(sources: Sequence[ModuleSource]) -> None:
    global _generation
    made_here = {name for name in _current if _is_made_here(name)}
    gone = made_here | {source.name for source in sources}
    # A module below one of them would stay, and be no attribute of the new one.
    for name in [name for name in sys.modules if _names_above(name) & gone]:
        sys.modules.pop(name, None)
    _current.clear()
    _generation += 1
    importlib.invalidate_caches()


def _names_above(name: str) -> set[str]:
    """Return the name of a module and those of the packages that it is in."""
    words = name.split(".")
    return {".".join(words[:count]) for count in range(1, len(words) + 1)}


def _is_made_here(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and isinstance(spec.loader, _Loader)


class _Loader(ExecutionLoader):
    """Makes a module of a text; compiled code on disk may be of another one, and is not used."""

    def __init__(self, source: ModuleSource) -> None:
        self.source = source
        self.name, self.path = source.name, source.path  # as readers of a package's files ask

    def get_data(self, path: str) -> bytes:
        """Read a file that lies beside the module, where this machine has it."""
        return Path(path).read_bytes()

    def get_resource_reader(self, fullname: str) -> FileReader:
        """Return what `importlib.resources` reads files of the package with."""
        return FileReader(cast(Any, self))  # it asks for name and path alone

    def get_source(self, fullname: str) -> str:
        """Return the text."""
        return self.source.text

    def get_filename(self, fullname: str) -> str:
        """Return where the text was read, for tracebacks."""
        return self.source.path or f"<{fullname}>"

    def is_package(self, fullname: str) -> bool:
        """Is it the text of a package?"""
        return self.source.is_package


class _Finder(MetaPathFinder):
    """Finds the modules whose texts are in use."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return how to make the module; None where it is none of them."""
        source = _current.get(fullname)
        if source is None:
            return None
        loader = _Loader(source)
        spec = importlib.util.spec_from_file_location(
            fullname,
            loader.get_filename(fullname),
            loader=loader,
            submodule_search_locations=_places(source, path) if source.is_package else None,
        )
        if spec is not None:
            spec.cached = None
        return spec


def _places(source: ModuleSource, path: Any) -> list[str]:
    """Return where a package has its other modules, if it has any on this machine."""
    places = [str(Path(source.path).parent)] if source.path else []
    for finder in sys.meta_path:
        spec = None if isinstance(finder, _Finder) else finder.find_spec(source.name, path)
        if spec is not None:
            places += [at for at in spec.submodule_search_locations or () if at not in places]
            break
    return places
