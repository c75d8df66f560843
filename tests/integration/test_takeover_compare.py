"""After a takeover the old root is compared with the new one, and the exit code tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import SparkRuntimeException

from tests.labs.chain import Chain
from tests.labs.moving_root import Bank, alive, make_bank, roots, settle
from vedur.db.conninfo import parse
from vedur.failpoint import set_hook
from vedur.ops.takeover.options import TakeoverOptions
from vedur.ops.takeover.run import takeover
from vedur.ops.takeover.verify import Verdict
from vedur.pipeline.compare import SessionServer, SharedComparer, socket_path

MakeChain = Callable[..., Chain]

pytestmark = [
    pytest.mark.usefixtures("without_spark"),
    pytest.mark.spark,
    pytest.mark.timeout(1800),
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
def test_whatever_ends_the_comparison_the_takeover_is_done(
    make_chain: MakeChain, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_bank(make_chain, 3)
    asked = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
    mine = f"{chain['n2'].settings.job_name} (admin)"

    def end_with(error: BaseException) -> Callable[[str], None]:
        def hook(name: str) -> None:
            if name == "compare.counted":
                raise error

        return hook

    def server_goes(name: str) -> None:
        if name == "compare.counted":  # and the connections of the command with it
            chain["n1"].db.execute(asked, [mine])

    cases = (
        (end_with(Py4JNetworkError("Answer from Java side is empty")), "side is empty"),
        (end_with(SparkRuntimeException("no executors\nat java.lang")), "no executors"),
        (server_goes, "terminating connection"),
        (end_with(KeyboardInterrupt()), "interrupted"),
    )
    with alive(chain):
        for hook, why in cases:
            caplog.clear()
            set_hook(hook)
            try:
                if why == "interrupted":
                    with pytest.raises(KeyboardInterrupt):  # exit code 130
                        run(chain, "n1", "n2", spark)
                else:
                    assert run(chain, "n1", "n2", spark) is Verdict.NOT_PROVEN
            finally:
                set_hook(None)
            assert roots(chain) == ["n2"]
            said = [r.getMessage() for r in caplog.records if "The takeover is" in r.getMessage()]
            assert len(said) == 1
            assert said[0].startswith("The takeover is done; 'n1' could not be compared (")
            assert why in said[0]
            assert said[0].endswith("): run compare with its ini")


@pytest.mark.draw("takeovers")
def test_the_worker_of_the_new_root_lends_its_session(
    make_chain: MakeChain,
    spark: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ini is that of the new root, the database that of the old one."""
    chain = make_bank(make_chain, 3)
    caplog.set_level("INFO")
    pidfile = str(tmp_path / "n2.pid")
    chain["n2"].settings = replace(chain["n2"].settings, pidfile=pidfile)
    answered: list[str] = []
    answer = SharedComparer.checksum

    def count(self: SharedComparer, pair: Any, *, count_only: bool = False) -> Any:
        found = answer(self, pair, count_only=count_only)
        answered.append(pair.target.connstr)
        return found

    def refuse(_settings: object) -> Any:
        raise AssertionError("a session of its own was started")

    monkeypatch.setattr(SharedComparer, "checksum", count)
    monkeypatch.setattr("vedur.pipeline.compare.shared_session.start_spark", refuse)
    server = SessionServer(spark, socket_path(pidfile), lambda: 4)
    try:
        with alive(chain):
            assert run(chain, "n1", "n2", None) is Verdict.EQUAL
            assert set(map(port_and_name, answered)) == {port_and_name(chain["n1"].settings.db)}
            chain["n1"].db.execute(
                "set session_replication_role = replica; delete from acct where id = 5;"
                "reset session_replication_role"
            )
            assert run(chain, "n1", "n2", None) is Verdict.DIFFERENT
    finally:
        server.stop()


def port_and_name(connstr: str) -> tuple[str, str]:
    params = parse(connstr)
    return params["port"], params["dbname"]


@pytest.mark.draw("takeovers")
def test_a_comparison_that_fails_is_no_failed_takeover(
    make_chain: MakeChain, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chain = make_bank(make_chain, 3, compare_sql="select 1 as cnt from nothing.at_all")
    with alive(chain):
        assert run(chain, "n1", "n2", spark) is Verdict.NOT_PROVEN
        assert roots(chain) == ["n2"]
        assert "The takeover is done; 'n1'" in caplog.text
