"""After a takeover the old root is compared with the new one, and the exit code tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.labs.chain import Chain
from tests.labs.moving_root import Bank, alive, make_bank, roots, settle
from vedur.failpoint import set_hook
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import takeover
from vedur.ops.takeover.verify import Verdict

MakeChain = Callable[..., Chain]

pytestmark = [
    pytest.mark.usefixtures("without_spark"),
    pytest.mark.spark,
    pytest.mark.timeout(600),
]

#: Steps at which the command is killed here; see tests/torture/test_short.py.
KILLED = frozenset({"takeover.compared"})


class Killed(BaseException):
    """The command ends here."""


def run(chain: Chain, old: str, new: str, spark: Any, at: str | None = None) -> Verdict:
    """Run the command with the ini of the node `at` (default: the new root)."""
    with chain[at or new].session() as session:
        return takeover(session, old, TakeoverOptions(node=new), spark)


@pytest.mark.draw("takeovers")
def test_the_old_root_is_compared(
    make_chain: MakeChain, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_bank(make_chain, 3)
    caplog.set_level("INFO")
    steps: list[str] = []

    def hook(name: str) -> None:
        steps.append(name)
        if name in KILLED and steps.count(name) == 1:
            raise Killed(name)

    with alive(chain):
        bank = Bank(chain, "n1")  # it writes on while both are compared
        set_hook(hook)
        try:
            with pytest.raises(Killed):
                run(chain, "n1", "n2", spark)
            assert run(chain, "n1", "n2", spark) is Verdict.EQUAL  # run again: compared again
        finally:
            set_hook(None)
            bank.end()
        assert roots(chain) == ["n2"]
        order = ["takeover.promoted", "takeover.turned", "compare.counted"]
        assert [step for step in steps if step in order][:3] == order
        assert "'n1' is equal to the new root" in caplog.text
        settle(chain)
        chain["n1"].db.execute(
            "set session_replication_role = replica; update acct set n = n + 1 where id = 3;"
            "reset session_replication_role"
        )
        # back, by the ini of the node that is the old root now
        assert run(chain, "n2", "n1", spark, at="n2") is Verdict.DIFFERENT
        assert roots(chain) == ["n1"]
        assert "public.acct: Results do not match!" in caplog.text
        assert "The takeover is done, but 'n2' differs" in caplog.text


@pytest.mark.draw("takeovers")
def test_a_comparison_that_fails_is_no_failed_takeover(
    make_chain: MakeChain, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_bank(make_chain, 3, compare_sql="select 1 as cnt from nothing.at_all")
    with alive(chain):
        assert run(chain, "n1", "n2", spark) is Verdict.NOT_PROVEN
        assert roots(chain) == ["n2"]
        assert "The takeover is done; 'n1'" in caplog.text
