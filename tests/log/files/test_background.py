"""Jobs run elsewhere, are collected here, and lanes do not wait for each other."""

import errno
import threading

import pytest

from smq.log.files.background import BackgroundThread, InlineBackground, JobLane

DEADLINE_S = 10


def test_a_job_in_place_is_done_when_submit_returns() -> None:
    results: list[object] = []
    background = InlineBackground()
    background.submit(JobLane.FILES, lambda: 3, results.append)
    assert results == [3]


def test_a_failed_job_gives_its_error() -> None:
    def fail() -> int:
        raise OSError(28, "no space")

    results: list[int | OSError] = []
    InlineBackground().submit(JobLane.FILES, fail, results.append)
    threads = BackgroundThread(lambda: None)
    threads.submit(JobLane.TABLES, fail, results.append)
    threads.wait()
    assert [result.errno for result in results if isinstance(result, OSError)] == [28, 28]


def test_a_lane_goes_on_after_a_job_that_had_no_memory() -> None:
    """Its thread ended, and nobody could read any more."""

    def fail() -> int:
        raise MemoryError

    results: list[int | OSError] = []
    threads = BackgroundThread(lambda: None)
    threads.submit(JobLane.READS, fail, results.append)
    threads.submit(JobLane.READS, lambda: 3, results.append)
    threads.wait()
    assert isinstance(results[0], OSError)
    assert (results[0].errno, results[1:]) == (errno.ENOMEM, [3])


def test_results_are_given_in_the_thread_that_collects() -> None:
    finished, seen = threading.Event(), list[tuple[object, int]]()
    background = BackgroundThread(finished.set)
    background.submit(
        JobLane.FILES, threading.get_ident, lambda r: seen.append((r, threading.get_ident()))
    )
    assert finished.wait(DEADLINE_S)
    while not background.collect():
        pass
    assert seen[0][1] == threading.get_ident() != seen[0][0]


def test_a_job_that_finishes_during_collect_is_collected_next_time() -> None:
    finished, results = threading.Event(), list[int]()
    background = BackgroundThread(finished.set)

    def again(result: int | OSError) -> None:
        assert isinstance(result, int)
        results.append(result)
        if result:
            finished.clear()
            background.submit(JobLane.SEARCHES, lambda: result - 1, again)
            assert finished.wait(DEADLINE_S)

    background.submit(JobLane.SEARCHES, lambda: 2, again)
    assert finished.wait(DEADLINE_S)
    assert [background.collect() for _ in range(4)] == [1, 1, 1, 0]
    assert results == [2, 1, 0]


def test_a_lane_does_not_wait_for_the_other() -> None:
    gate, results = threading.Event(), list[object]()
    background = BackgroundThread(lambda: None)
    background.submit(JobLane.TABLES, lambda: gate.wait(DEADLINE_S), results.append)
    background.submit(JobLane.FILES, lambda: "file", results.append)
    background.wait_a_job(JobLane.FILES)
    assert results == ["file"]
    gate.set()
    background.wait()
    assert results == ["file", True]


def test_waiting_for_a_lane_without_jobs_returns_at_once() -> None:
    background = BackgroundThread(lambda: None)
    background.wait_a_job(JobLane.FILES)
    background.wait()
    assert background.collect() == 0


def test_an_abandoned_lane_ends_with_the_job_under_way() -> None:
    gate, begun, results = threading.Event(), threading.Event(), list[object]()
    background = BackgroundThread(lambda: None)

    def job() -> bool:
        begun.set()
        return gate.wait(DEADLINE_S)

    background.submit(JobLane.READS, job, results.append)
    assert begun.wait(DEADLINE_S)
    for lane in (JobLane.READS, JobLane.READS, JobLane.FILES):
        background.submit(lane, lambda: "waited", results.append)
    background.abandon(JobLane.READS)
    background.submit(JobLane.READS, lambda: "came later", results.append)
    background.wait_a_job(JobLane.FILES)
    gate.set()
    background.wait()
    assert results == ["waited", True]


@pytest.mark.parametrize(
    "lanes", [(JobLane.FILES, JobLane.TABLES), (JobLane.TABLES, JobLane.FILES)]
)
def test_wait_waits_for_jobs_that_jobs_have_submitted(lanes: tuple[JobLane, JobLane]) -> None:
    background, results = BackgroundThread(lambda: None), list[object]()
    background.submit(
        lanes[0], lambda: 1, lambda _: background.submit(lanes[1], lambda: 2, results.append)
    )
    background.wait()
    assert results == [2]
