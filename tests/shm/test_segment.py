"""The memory of a log: the holder of its descriptor may read it, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from shm.kernels.base.words import WORD_LOG, WORD_MAGIC, WORD_RING_BYTES, WORD_SEGMENT_BYTES
from shm.layout import LAYOUT_MAGIC
from shm.segment import LogMemory

RING, SEGMENT = 1 << 16, 1 << 15

STRANGER = """
import mmap, os, sys
fd, size = int(sys.argv[1]), os.fstat(int(sys.argv[1])).st_size
def refused(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "allowed"
again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
print(refused(lambda: mmap.mmap(fd, size)))
print(refused(lambda: mmap.mmap(again, size)))
print(refused(lambda: os.ftruncate(again, size // 2)))
print(refused(lambda: os.ftruncate(again, size * 2)))
print(refused(lambda: os.pwrite(again, b"x", 0)))
print(refused(lambda: os.posix_fallocate(again, size, 1)))
reading = mmap.mmap(fd, size, prot=mmap.PROT_READ)
print(reading[-5:].decode())
"""


@pytest.fixture
def memory() -> Iterator[LogMemory]:
    log = LogMemory.create(2, RING, SEGMENT, 4)
    yield log
    os.close(log.fd)


def test_a_stranger_with_the_descriptor_can_read_and_neither_write_nor_resize(
    memory: LogMemory,
) -> None:
    memory.ring[-5:] = np.frombuffer(b"hello", np.uint8)
    command = [sys.executable, "-c", STRANGER, str(memory.fd)]
    said = subprocess.run(
        command, pass_fds=[memory.fd], capture_output=True, text=True, check=True, timeout=30
    )
    assert said.stdout.split() == [*["PermissionError"] * 6, "hello"]


def test_the_creator_goes_on_writing_and_who_has_attached_sees_it(memory: LogMemory) -> None:
    attached = LogMemory.attach(memory.fd)
    memory.ring[0] = 7
    memory.partitions[3, 15] = 9
    assert attached.ring[0] == 7
    assert attached.partitions[3, 15] == 9
    assert attached.layout == memory.layout
    assert attached.words[WORD_LOG] == 2
    assert not attached.memory.flags.writeable
    with pytest.raises(TypeError):
        attached.words[0] = 0


def test_the_facts_that_never_change_stand_in_the_header(memory: LogMemory) -> None:
    assert memory.words[WORD_MAGIC] == LAYOUT_MAGIC
    assert memory.words[WORD_RING_BYTES] == RING == len(memory.ring) == len(memory.ring_view)
    assert memory.words[WORD_SEGMENT_BYTES] == SEGMENT


def test_columns_are_views_on_the_index(memory: LogMemory) -> None:
    memory.column("partition")[-1] = 0xFFFFFFFF
    at, dtype = memory.layout.index_columns()["partition"]
    end = at + memory.layout.index_capacity * dtype.itemsize
    assert memory.memory[end - 4 : end].tolist() == [255] * 4


def test_touching_pages_changes_nothing_also_at_the_rings_end(memory: LogMemory) -> None:
    memory.ring[:] = 3
    memory.touch(5000, 10_000)
    memory.touch(RING - 4096, 1 << 20)
    assert (memory.ring == 3).all()
    LogMemory.in_process(0, RING, SEGMENT, 1).touch(0, RING)


def foreign(content: bytes) -> int:
    fd = os.memfd_create("foreign")
    os.write(fd, content)
    return fd


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(bytes(4095), id="shorter than a header"),
        pytest.param(bytes(1 << 20), id="zeros"),
        pytest.param(os.urandom(1 << 16), id="noise"),
    ],
)
def test_foreign_memory_is_not_attached(content: bytes) -> None:
    fd = foreign(content)
    with pytest.raises(ValueError, match="not the memory of a log"):
        LogMemory.attach(fd)
    os.close(fd)


@pytest.mark.parametrize("word", [WORD_MAGIC, WORD_RING_BYTES])
def test_memory_of_another_version_or_cut_otherwise_is_not_attached(word: int) -> None:
    log = LogMemory.create(0, RING, SEGMENT, 1)
    log.words[word] += 1
    with pytest.raises(ValueError, match="of this version"):
        LogMemory.attach(log.fd)
    os.close(log.fd)
