"""The memory of a table of producers."""

import subprocess

import psutil
import pytest

from shm.kernels.log.producers import H_BUCKET_MASK, H_CAPACITY, H_COUNT, H_KEY, PRODUCER_COLUMNS
from shm.producer_table import new_producers

KEY = bytes(range(16))


def test_a_new_table_is_empty_and_knows_its_size_and_its_key() -> None:
    table = new_producers(64, KEY)
    assert table.shape == (1 + 64 + 128 // PRODUCER_COLUMNS, PRODUCER_COLUMNS)
    assert (table[0, H_COUNT], table[0, H_CAPACITY], table[0, H_BUCKET_MASK]) == (0, 64, 127)
    assert table[0, H_KEY : H_KEY + 2].tobytes() == KEY
    assert not table[1:].any()


def test_the_memory_of_a_large_table_comes_when_it_is_written() -> None:
    before = resident_bytes()
    table = new_producers(1 << 20, KEY)
    assert table.nbytes > 256 << 20
    assert resident_bytes() - before < 64 << 20


def test_a_process_with_more_tables_than_memory_can_start_others() -> None:
    one = new_producers(1 << 18, KEY)
    count = psutil.virtual_memory().total // one.nbytes + psutil.swap_memory().total // one.nbytes
    tables = [new_producers(1 << 18, KEY) for _ in range(count + 8)]
    assert subprocess.run(["true"], check=False).returncode == 0
    assert len(tables) > count


@pytest.mark.parametrize(("capacity", "key"), [(48, KEY), (8, KEY), (64, b"short")])
def test_only_powers_of_two_and_whole_keys_are_taken(capacity: int, key: bytes) -> None:
    with pytest.raises(AssertionError):
        new_producers(capacity, key)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096
