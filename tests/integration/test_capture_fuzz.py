"""Random changes of captured tables end in the same rows, replayed one by one (`capture_fuzz`).

The seed is printed and stands in the failure; VEDUR_FUZZ_SEED runs that one again. The failing
run is kept as SQL beside the test's temporary files.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.capture_fuzz import ROLE, Case, Differs
from vedur.db import Database

MakeDbOn = Callable[..., Database]


@pytest.fixture
def run_case(make_db_on: MakeDbOn, tmp_path: Path) -> Iterator[Callable[[Any, int], None]]:
    def run(server: Any, seed: int, transactions: int = 25) -> None:
        server.admin.execute(
            f"do $$ begin if to_regrole('{ROLE}') is null then create role {ROLE}; end if; end $$"
        )
        root, leaf = make_db_on(server, autocommit=True), make_db_on(server, "bare")
        root.call("pgq.create_queue", "q")
        case = Case(seed, transactions)
        print(case)
        try:
            case.run(root, leaf)
        except Differs as error:
            saved = tmp_path / f"capture-{seed}.sql"
            saved.write_text(error.script)
            pytest.fail(f"VEDUR_FUZZ_SEED={seed}, saved as {saved}\n{error}")
        finally:
            root.close()
            leaf.close()

    yield run


def first_seed() -> int:
    """What the environment says, or chance."""
    return int(os.environ.get("VEDUR_FUZZ_SEED") or random.SystemRandom().randrange(10**9))


@pytest.mark.draw("histories")
def test_random_changes_are_captured_in_their_order(newest: Any, run_case: Any) -> None:
    seed = first_seed()
    for number in range(4):
        run_case(newest, seed + number, 12)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_random_changes_are_captured_in_their_order(pg_server: Any, run_case: Any) -> None:
    seed, end = first_seed(), time.monotonic() + 180
    print(f"from seed {seed}")
    while time.monotonic() < end:
        run_case(pg_server, seed)
        seed += 1
