"""Queues that share a Spark session: each has pools of its own, and is interrupted alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.wait import until
from vedur.pipeline.spark.spark_pool import enter_pool, interrupt_pools
from vedur.pipeline.spark.tasks import run_tasks
from vedur.threads import Pool, working_for

pytestmark = pytest.mark.spark


def wait_for_file(place: Path) -> Callable[[str], str]:
    """Make a task that says that it runs, and ends when it is let go."""

    def work(name: str) -> str:
        import time

        (place / f"{name}.runs").touch()
        while not (place / f"{name}.go").exists():
            time.sleep(0.02)
        return name

    return work


def test_each_job_has_its_pools(spark: Any) -> None:
    def pool_of(*kinds: str | None) -> str:
        for kind in kinds:
            enter_pool(spark, kind)
        found: str = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
        return found

    with Pool(1) as threads:  # one thread, which works for several jobs
        found = []
        for job in ("a", "b"):
            with working_for(job):
                found += [
                    threads.submit(pool_of, None).result(),
                    threads.submit(pool_of, "copy").result(),
                    threads.submit(pool_of, None).result(),  # what a copy replays is its own
                    threads.submit(lambda: sorted(spark.sparkContext.getJobTags())).result(),
                ]
    assert found[:3] == ["replay a", "copy a", "copy a"]
    assert found[4:7] == ["replay b", "copy b", "copy b"]
    assert len(found[3]) == len(found[7]) == 1 and found[3] != found[7]


def test_the_only_worker_keeps_sparks_own_pool(spark: Any) -> None:
    with Pool(1) as threads:
        threads.submit(enter_pool, spark).result()
        get = spark.sparkContext.getLocalProperty
        assert threads.submit(get, "spark.scheduler.pool").result() is None
        threads.submit(enter_pool, spark, "copy").result()
        assert threads.submit(get, "spark.scheduler.pool").result() == "copy"


@pytest.mark.timeout(600)
def test_one_job_is_interrupted_and_the_other_goes_on(spark: Any, tmp_path: Path) -> None:
    work = wait_for_file(tmp_path)
    with Pool(2) as threads:
        running = {}
        for job in ("a", "b"):
            with working_for(job):
                running[job] = threads.submit(run_tasks, spark, work, [job])
        try:
            assert until(lambda: len(list(tmp_path.glob("*.runs"))) == 2, 300.0)
            interrupt_pools(spark, "a")
            with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"):
                running["a"].result(timeout=120)
            (tmp_path / "b.go").touch()
            assert running["b"].result(timeout=120) == ["b"]
        finally:
            for job in running:
                (tmp_path / f"{job}.go").touch()
