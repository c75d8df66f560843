"""Threads take over for which job they work."""

from __future__ import annotations

import threading

from vedur.threads import Pool, Thread, current_job, threads_of, working_for


def test_a_thread_works_for_the_job_that_has_made_it() -> None:
    seen: list[str] = []
    with working_for("a"):
        thread = Thread(target=lambda: seen.append(current_job()))
    thread.start()
    thread.join()
    assert (seen, current_job()) == (["a"], "")


def test_a_call_in_a_pool_works_for_the_job_that_submits_it() -> None:
    with Pool(1) as pool:
        found = []
        for job in ("a", "b", ""):
            with working_for(job):
                found.append(pool.submit(current_job).result())
                found += pool.map(lambda _: current_job(), range(1))
    assert found == ["a", "a", "b", "b", "", ""]


def test_jobs_end_when_their_block_does() -> None:
    with working_for("a"):
        with working_for("b"):
            assert current_job() == "b"
        assert current_job() == "a"


def test_the_threads_of_a_job_are_known() -> None:
    go_on = threading.Event()
    with working_for("mine"):
        thread = Thread(target=go_on.wait)
        thread.start()
        try:
            assert threads_of("mine") == [thread]
            assert threads_of("other") == []
        finally:
            go_on.set()
            thread.join()
        assert threads_of("mine") == []
