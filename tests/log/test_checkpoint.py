"""The checkpoint file, whole and damaged."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.producers import PRODUCER_COLUMNS
from smq.log.checkpoint import FILE_NAME, FILE_NAME_BEFORE, Checkpoint, PartitionState
from smq.log.disk import OsDisk


def checkpoint(position: int = 4096) -> Checkpoint:
    partitions = [
        PartitionState(7, [(0, 0), (3, 120)], 10, 200, 150, 1_700, 4_000, 55),
        PartitionState(2**31),
    ]
    producers = np.arange(2 * PRODUCER_COLUMNS, dtype=np.int64).reshape(2, -1)
    return Checkpoint(position, 2048, 9, partitions, producers)


def test_a_checkpoint_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = checkpoint()
    written.save(OsDisk(), tmp_path)
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert (loaded.position, loaded.synced, loaded.generation) == (4096, 2048, 9)
    assert loaded.partitions == written.partitions
    assert (loaded.producers == written.producers).all()


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    assert Checkpoint.load(tmp_path) == (None, False)


@pytest.mark.parametrize("step", [1, 7])
def test_any_flipped_bit_is_noticed_and_the_one_before_serves(tmp_path: Path, step: int) -> None:
    checkpoint(64).save(OsDisk(), tmp_path)
    checkpoint(128).save(OsDisk(), tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    for at in range(0, len(good), step):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        (tmp_path / FILE_NAME).write_bytes(bad)
        loaded, is_newest = Checkpoint.load(tmp_path)
        assert loaded is not None
        assert (loaded.position, is_newest) == (64, False), f"byte {at}"


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    checkpoint().save(OsDisk(), tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME_BEFORE).write_bytes(good[:-1])
    for length in range(len(good)):
        (tmp_path / FILE_NAME).write_bytes(good[:length])
        assert Checkpoint.load(tmp_path) == (None, False)
