"""A call can be read, and a class has one idea: few parameters, few methods.

A function that needs more parameters misses a noun: what belongs together gets a name, a docstring
and one place in the call. A class with more methods is several, that share no more than `self`.

What breaks the rules is listed here, with the reason. A list or a number may only become smaller:
whoever mends an entry takes it away.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import vedur

PACKAGE = Path(vedur.__file__).parent

#: The most parameters of a function, but for `self`.
MOST_PARAMETERS = 6
#: The most methods of a class, properties included.
MOST_METHODS = 30

_CONTRACT = "calls a function of the contract with its parameters, one to one"

#: Functions with more parameters: how many, and why.
LONG_CALLS = {
    "node/setup.py register_location": (7, f"{_CONTRACT}; two say how it is logged"),
    "node/setup.py create_node": (8, _CONTRACT),
    "queue/publish.py publish": (7, _CONTRACT),
    "handlers/keyed_hash.py _half": (8, "words of a round of BLAKE2s, for each block of rows"),
    "pipeline/spark/session.py start_session": (8, "named at each call, and independent"),
}
#: Classes with more methods: how many, and why.
LARGE_CLASSES = {
    "db/database.py Database": (33, "one connection: a thin method for each thing psycopg does"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text("utf-8"))


def parameters(function: Function) -> int:
    """How many a caller has to think of."""
    given = function.args
    named = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    rest = [arg for arg in (given.vararg, given.kwarg) if arg is not None]
    return len(named) - (named[:1] in (["self"], ["cls"])) + len(rest)


@cache
def calls() -> dict[str, int]:
    """The parameters of every function; of several of one name in a module, the most."""
    found: dict[str, int] = {}
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                name = f"{module} {node.name}"
                found[name] = max(parameters(node), found.get(name, 0))
    return found


@cache
def classes() -> dict[str, int]:
    """The methods of every class."""
    return {
        f"{module} {node.name}": sum(isinstance(part, Function) for part in node.body)
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def test_no_function_has_more_parameters_than_it_may() -> None:
    longer = {
        name: n for name, n in calls().items() if n > LONG_CALLS.get(name, (MOST_PARAMETERS,))[0]
    }
    assert longer == {}, "give a name to what belongs together (a small frozen dataclass)"


def test_no_class_has_more_methods_than_it_may() -> None:
    larger = {
        name: n for name, n in classes().items() if n > LARGE_CLASSES.get(name, (MOST_METHODS,))[0]
    }
    assert larger == {}, "split it by idea, not by size"


@pytest.mark.parametrize("name", LONG_CALLS)
def test_a_long_call_that_was_mended_is_not_listed(name: str) -> None:
    assert calls().get(name, 0) > MOST_PARAMETERS, "take it away from LONG_CALLS"


@pytest.mark.parametrize("name", LARGE_CLASSES)
def test_a_large_class_that_was_mended_is_not_listed(name: str) -> None:
    assert classes().get(name, 0) > MOST_METHODS, "take it away from LARGE_CLASSES"


def test_the_rule_counts_what_a_caller_gives() -> None:
    def count(signature: str) -> int:
        (function,) = ast.parse(f"def f({signature}): ...").body
        assert isinstance(function, Function)
        return parameters(function)

    assert count("") == 0
    assert count("self, a, b=1") == 2
    assert count("cls, *, a, b") == 2
    assert count("a, /, b, *rest, c, **more") == 5
