"""The memory map of a session is a contract between processes: its numbers are pinned."""

import fcntl
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from shm.kernels.session import words
from shm.kernels.session.words import WATCH_MAX
from shm.session import MAGIC, SessionMemory

KiB = 1024
INBOX_BYTES, ANSWERS_BYTES = 64 * KiB, 16 * KiB


@pytest.fixture
def shard() -> Iterator[SessionMemory]:
    memory = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
    yield memory
    os.close(memory.fd)


def test_the_words_are_where_version_1_has_them() -> None:
    assert MAGIC == 0x1_53_51_4D_53
    pinned = {
        "SESSION_MAGIC": 0, "SESSION_INBOX_BYTES": 1, "SESSION_ANSWERS_BYTES": 2,
        "SESSION_REQUEST_BYTES_MAX": 3, "INBOX_HEAD": 8, "SHARD_SLEEP": 16, "ANSWERS_TAIL": 24,
        "ROOM_SLEEP": 25, "EVENTS": 32, "INBOX_TAIL": 64, "ROOM_WANTED": 72,
        "ANSWERS_HEAD": 80, "CLIENT_SLEEP": 88, "WATCH_VERSION": 96, "WATCH_COUNT": 97,
        "WATCH_AT": 4096, "WATCH_MAX": 4096, "INBOX_AT": 36864, "ALIGNMENT_BYTES": 8, "PAD": -1,
        "RESTART_BYTES": 65536,
        "WATCH_ALL": -1,
    }  # fmt: skip
    assert {name: getattr(words, name) for name in pinned} == pinned


def test_no_line_has_words_of_both_sides_and_those_waited_for_have_one_each() -> None:
    shard = {words.INBOX_HEAD, words.SHARD_SLEEP, words.ANSWERS_TAIL, words.EVENTS}
    client = {words.INBOX_TAIL, words.ROOM_WANTED, words.ANSWERS_HEAD, words.CLIENT_SLEEP}
    lines = [word // 8 for word in (*shard, *client, words.WATCH_VERSION, words.SESSION_MAGIC)]
    assert len(set(lines)) == len(lines)


def test_each_side_reads_the_words_that_the_other_writes(shard: SessionMemory) -> None:
    client = SessionMemory.attach(shard.fd)
    assert client.request_bytes_max == shard.request_bytes_max == INBOX_BYTES // 2
    assert np.array_equal(client.side, shard.side)
    client.memory[words.INBOX_AT] = 7
    assert shard.memory[words.INBOX_AT] == 7
    assert len(client.memory) == words.INBOX_AT + INBOX_BYTES + ANSWERS_BYTES


def test_a_client_cannot_cut_grow_or_seal_what_it_was_given(shard: SessionMemory) -> None:
    again = os.open(f"/proc/self/fd/{shard.fd}", os.O_RDWR)
    for fd in (shard.fd, again):
        for size in (0, 4096, len(shard.memory) + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        for seal in (fcntl.F_SEAL_WRITE, 0x10):
            with pytest.raises(PermissionError):
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal)
    os.close(again)


def test_pages_punched_out_are_zeros_to_the_shard(shard: SessionMemory) -> None:
    client = mmap.mmap(shard.fd, 0)
    client[words.INBOX_AT] = 1
    client.madvise(mmap.MADV_REMOVE)
    assert not shard.memory.any()


@pytest.mark.parametrize("size", [0, 4096, words.INBOX_AT, words.INBOX_AT + 4096])
def test_another_descriptor_is_refused(size: int) -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, size)
    with pytest.raises(ValueError, match="not the memory of a session"):
        SessionMemory.attach(fd)
    os.close(fd)


def test_a_watch_list_is_read_once_for_each_change(shard: SessionMemory) -> None:
    client = SessionMemory.attach(shard.fd)
    assert not shard.watch_has_changed()
    client.watch([5, 3, 5])
    assert shard.watch_has_changed()
    assert shard.watched() == {3, 5}
    for word in range(words.EVENTS, words.INBOX_TAIL):
        client.words[word] = 7  # Which list was read is not for the client to say.
    assert not shard.watch_has_changed()
    client.watch([])
    assert shard.watched() == set()
    client.watch(range(WATCH_MAX + 1))
    assert shard.watched() is None


@pytest.mark.parametrize("count", [-1, -(2**63), WATCH_MAX + 1, 2**63 - 1])
def test_a_list_of_impossible_length_stands_for_all(shard: SessionMemory, count: int) -> None:
    shard.words[words.WATCH_COUNT] = count
    assert shard.watched() is None
