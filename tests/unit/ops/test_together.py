"""Which ini files one process can serve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vedur.config import LondisteSettings
from vedur.errors import ConfigError
from vedur.ops.processes.together import require_together


def settings(name: str, **more: object) -> LondisteSettings:
    return replace(
        LondisteSettings(
            db=f"host=h dbname={name}",
            queue_name=f"q_{name}",
            job_name=name,
            pidfile=f"/run/{name}.pid",
            logfile=f"/log/{name}.log",
            config_file=f"/etc/{name}.ini",
        ),
        **more,  # type: ignore[arg-type]
    )


A = settings("a")


@pytest.mark.parametrize(
    "other",
    [
        settings("b"),
        settings("b", db=A.db),  # another queue of the same database
        settings("b", queue_name=A.queue_name),  # the same queue on another node
        settings("b", pidfile="", logfile=""),
    ],
)
def test_these_go_together(other: LondisteSettings) -> None:
    require_together([A, other])
    require_together([replace(A, pidfile="", logfile=""), other])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (settings("b", spark={"spark.driver.memory": "1g"}), "differ in [spark]"),
        (settings("b", max_connections_per_node=3), 'differ in "max_connections_per_node"'),
        (settings("b", db=A.db, queue_name=A.queue_name), "have the same node"),
        (
            settings("b", db="dbname=a host=h password=secret", queue_name=A.queue_name),
            "have the same node",
        ),
        (settings("b", job_name="a"), 'have the same "job_name"'),
        (settings("b", pidfile="/run/a.pid"), 'have the same "pidfile"'),
        (settings("b", logfile="/log/../log/a.log"), 'have the same "logfile"'),
        (settings("b", use_skylog=1), '"use_skylog" directs the log of a whole process'),
    ],
)
def test_these_do_not(other: LondisteSettings, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_together([A, settings("c"), other])
    assert said in caught.value.message and "/etc/b.ini" in caught.value.message
    assert "secret" not in caught.value.message
