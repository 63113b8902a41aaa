"""The catalog's memory: readers in other processes never see half of a value."""

import mmap
import os

import pytest

from shm.catalog import CatalogBlock
from tests.shm.forks import forked

ROUNDS = 3000
VALUE_BYTES_MAX = 200_000  # Copying them takes long enough to be met in the middle.


def value_of(version: int) -> bytes:
    """A value that shows to which version it belongs, all along."""
    return bytes([version % 251]) * (VALUE_BYTES_MAX - version % 1000)


def test_a_value_is_read_as_it_was_published() -> None:
    block = CatalogBlock.create(100)
    assert (block.version(), block.read()) == (0, (0, b""))
    assert block.publish(b"one") == 1
    assert block.read() == (1, b"one")
    assert block.publish(b"") == 2
    assert block.read() == (2, b"")
    assert block.publish(b"x" * 100) == 3
    assert block.read() == (3, b"x" * 100)


def test_a_glance_tells_whether_there_is_another_version() -> None:
    block = CatalogBlock.create(100)
    assert not block.has_moved(0)
    block.publish(b"one")
    assert block.has_moved(0)
    assert not block.has_moved(1)


def test_a_value_that_is_too_large_is_our_bug() -> None:
    block = CatalogBlock.create(100)
    with pytest.raises(AssertionError, match="outgrown"):
        block.publish(bytes(101))


def test_no_reader_sees_a_torn_value_while_another_process_publishes() -> None:
    block = CatalogBlock.create(VALUE_BYTES_MAX)

    def publish() -> None:
        for version in range(1, ROUNDS + 1):
            assert block.publish(value_of(version)) == version

    seen = set()
    with forked(publish):
        version = 0
        while version < ROUNDS:
            version, value = block.read()
            assert version == 0 or value == value_of(version)
            seen.add(version)
    assert len(seen) > 1


def test_a_process_with_the_descriptor_reads_the_catalog_and_cannot_write() -> None:
    block = CatalogBlock.create(100)
    block.publish(b"one")
    reader = CatalogBlock.attach(os.open(f"/proc/self/fd/{block.fd}", os.O_RDWR))
    assert reader.read() == (1, b"one")
    block.publish(b"two")
    assert reader.has_moved(1)
    assert reader.read() == (2, b"two")
    with pytest.raises(TypeError):
        reader.publish(b"three")
    with pytest.raises(PermissionError):
        mmap.mmap(reader.fd, mmap.PAGESIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(reader.fd, 0)


@pytest.mark.parametrize("size", [0, 4096, 4097 + 2])
def test_something_else_is_not_taken_for_a_catalog(size: int) -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, size)
    with pytest.raises(ValueError, match="not a catalog"):
        CatalogBlock.attach(fd)
    os.close(fd)
