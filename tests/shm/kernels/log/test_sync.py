"""The sync thread: in order, never past a failure, and gone when asked."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    COUNTER_SYNC_NS,
    COUNTER_SYNC_TIMES,
    COUNTER_SYNCS,
    TIME_BUCKETS,
    WORD_SYNCED,
)
from shm.kernels.log import sync as module
from shm.kernels.log.sync import (
    BOX_DONE,
    BOX_ERRNO,
    BOX_EVENT_FD,
    BOX_REQUESTED,
    BOX_REQUESTS,
    BOX_STOP,
    BOX_WORDS,
    post_sync,
    stop_sync,
    sync_loop,
)
from shm.segment import LogMemory

WAIT_S = 30


class Syncing:
    """A sync thread and its mailbox; each event is read from a pipe, with a deadline."""

    def __init__(self) -> None:
        self.log = LogMemory.in_process(0, 1 << 13, 1 << 12, 1)
        self.box = np.zeros(BOX_WORDS, np.int64)
        self.events, self.box[BOX_EVENT_FD] = os.pipe()
        self.thread = threading.Thread(target=sync_loop, args=(self.log.memory, self.box))

    def start(self) -> None:
        self.thread.start()

    def wait_for(self, served: int) -> None:
        """Until so many requests are served, or one has failed."""
        while self.box[BOX_DONE] < served and self.box[BOX_ERRNO] == 0:
            assert int.from_bytes(os.read(self.events, 8), "little") == 1

    def stop_thread(self) -> None:
        stop_sync(self.box)
        if self.thread.ident is not None:
            self.thread.join(WAIT_S)
            assert not self.thread.is_alive()

    def stop(self) -> None:
        self.stop_thread()
        os.close(self.events)
        os.close(int(self.box[BOX_EVENT_FD]))

    @property
    def synced(self) -> int:
        return int(self.log.words[WORD_SYNCED])


@pytest.fixture
def syncing() -> Iterator[Syncing]:
    one = Syncing()
    yield one
    one.stop()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_a_synced_position_is_published_and_an_event_sent(syncing: Syncing, file: int) -> None:
    syncing.start()
    for upto in (64, 128, 4096):
        assert post_sync(syncing.box, file, upto)
        syncing.wait_for(int(syncing.box[BOX_REQUESTED]))
        assert syncing.synced == upto


def test_each_sync_is_counted_with_its_time(syncing: Syncing, file: int) -> None:
    syncing.start()
    for served in range(1, 4):
        post_sync(syncing.box, file, served)
        syncing.wait_for(served)
    syncing.stop_thread()
    words = syncing.log.words
    counts = list(words[COUNTER_SYNC_TIMES:][:TIME_BUCKETS])
    assert sum(counts) == words[COUNTER_SYNCS] == 3
    least_us = sum(count * 2 ** (b - 1) for b, count in enumerate(counts) if b)
    assert least_us <= words[COUNTER_SYNC_NS] / 1000 < max(3, 2 * least_us + 3)


def test_requests_that_wait_together_are_served_together(syncing: Syncing, file: int) -> None:
    for upto in range(1, BOX_REQUESTS + 1):
        assert post_sync(syncing.box, file, upto)
    syncing.start()
    syncing.wait_for(BOX_REQUESTS)
    assert (syncing.synced, syncing.box[BOX_DONE]) == (BOX_REQUESTS, BOX_REQUESTS)


def test_a_full_box_takes_no_more_until_some_are_served(syncing: Syncing, file: int) -> None:
    for upto in range(BOX_REQUESTS):
        assert post_sync(syncing.box, file, upto)
    assert not post_sync(syncing.box, file, 99)
    syncing.start()
    syncing.wait_for(BOX_REQUESTS)
    assert post_sync(syncing.box, file, 99)
    syncing.wait_for(BOX_REQUESTS + 1)
    assert syncing.synced == 99


def test_a_failed_sync_is_reported_and_later_requests_are_not_served(
    syncing: Syncing, file: int
) -> None:
    closed = os.dup(file)
    os.close(closed)
    post_sync(syncing.box, file, 64)
    post_sync(syncing.box, closed, 128)  # fdatasync says EBADF.
    post_sync(syncing.box, file, 192)
    syncing.start()
    syncing.wait_for(3)
    assert syncing.box[BOX_ERRNO] != 0
    assert (syncing.synced, syncing.box[BOX_DONE]) == (64, 1)


def test_a_pipe_cannot_be_synced_so_fdatasync_is_what_is_called(syncing: Syncing) -> None:
    post_sync(syncing.box, syncing.events, 64)
    syncing.start()
    syncing.wait_for(1)
    assert (syncing.synced, syncing.box[BOX_DONE]) == (0, 0)


def test_after_a_failure_was_forgotten_it_goes_on(syncing: Syncing, file: int) -> None:
    post_sync(syncing.box, syncing.events, 64)
    syncing.start()
    syncing.wait_for(1)
    syncing.box[BOX_DONE] = syncing.box[BOX_REQUESTED]
    syncing.box[BOX_ERRNO] = 0
    assert post_sync(syncing.box, file, 128)
    syncing.wait_for(2)
    assert syncing.synced == 128


def test_an_idle_thread_stops_when_asked(syncing: Syncing) -> None:
    syncing.start()
    stop_sync(syncing.box)
    syncing.thread.join(WAIT_S)
    assert not syncing.thread.is_alive()


@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_a_failed_request_is_not_synced_again_after_a_repair(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A repair ends between two looks of the loop: the descriptor is closed, or another file's."""
    log, box, looked = LogMemory.in_process(0, 1 << 13, 1 << 12, 1), np.zeros(BOX_WORDS), [0]
    box[BOX_REQUESTED], box[BOX_ERRNO] = 1, 5

    def look(box: np.ndarray, word: int) -> int:
        value = int(box[word])
        looked[0] += 1
        if looked[0] == looks:
            box[BOX_DONE], box[BOX_ERRNO] = box[BOX_REQUESTED], 0
        return value

    def wait(box: np.ndarray, _requested: int) -> None:
        box[BOX_STOP] = looked[0] >= looks

    def sync(*_: object) -> int:
        raise AssertionError("the failed request is synced")

    monkeypatch.setattr(module, "load_acquire", look)
    monkeypatch.setattr(module, "_wait", wait)
    monkeypatch.setattr(module, "_sync_round", sync)
    sync_loop.py_func(log.memory, box)  # type: ignore[attr-defined]
