"""The checkpoint file, whole and damaged."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.crc32c import crc32c
from shm.kernels.log.producers import PRODUCER_COLUMNS
from smq.log.files.checkpoint import (
    FILE_NAME,
    FILE_NAME_BEFORE,
    NO_TRANSACTIONS,
    Aborted,
    Checkpoint,
    Open,
    PartitionCheckpoint,
    TransactionsCopy,
)
from smq.log.files.disk import OsDisk
from smq.model.errors import MadeByNewer


def checkpoint(position: int = 4096) -> Checkpoint:
    partitions = [
        PartitionCheckpoint(7, [(0, 0), (3, 120)], 10, 200, 150, 1_700, 4_000, 55),
        PartitionCheckpoint(2**31),
    ]
    producers = np.arange(2 * PRODUCER_COLUMNS, dtype=np.int64).reshape(2, -1)
    transactions = TransactionsCopy(
        [Open(7, 11, 3, 150, 1_700), Open(2**31, 2**40, 0, 0, 0)],
        [np.array([Aborted(7, 12, 0, 130, 140), Aborted(7, 2**40, 0, 128, 141)])],
    )
    return Checkpoint(position, 2048, 9, partitions, producers, transactions)


def told(loaded: Checkpoint) -> tuple[list[Open], list[list[int]]]:
    """Its transactions, for comparing."""
    kept = loaded.transactions
    return kept.open, [row for rows in kept.aborted for row in rows.tolist()]


def rewritten(path: Path, version: int, cut: bytes, *, by: bytes = b"") -> None:
    """Make a checkpoint one of an earlier version, which has other text."""
    data = path.read_bytes()
    text_bytes = int.from_bytes(data[12:16], "little")
    text = data[16 : 16 + text_bytes].replace(cut, by)
    assert len(text) != text_bytes
    body = len(text).to_bytes(4, "little") + text + data[16 + text_bytes :]
    head = b"SMQCKPT" + bytes([version])
    checked = np.frombuffer(body if version == 1 else head + body, np.uint8)
    check = int(crc32c(checked, 0, len(checked)))
    path.write_bytes(head + check.to_bytes(4, "little") + body)


def test_a_checkpoint_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = checkpoint()
    written.save(OsDisk(), tmp_path)
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert (loaded.position, loaded.synced, loaded.generation) == (4096, 2048, 9)
    assert loaded.partitions == written.partitions
    assert told(loaded) == told(written)
    assert len(told(loaded)[1]) == 2
    assert (loaded.producers == written.producers).all()


def test_a_checkpoint_of_version_1_has_no_transactions(tmp_path: Path) -> None:
    written = checkpoint()
    written.transactions = NO_TRANSACTIONS
    written.save(OsDisk(), tmp_path)
    rewritten(tmp_path / FILE_NAME, 1, b',"producer_count":2,"open":[]')
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert loaded.partitions == written.partitions
    assert told(loaded) == ([], [])
    assert (loaded.producers == written.producers).all()


def test_a_checkpoint_of_version_2_has_aborted_transactions_in_its_text(tmp_path: Path) -> None:
    written = checkpoint()
    written.transactions = TransactionsCopy(written.transactions.open, [])
    written.save(OsDisk(), tmp_path)
    aborted = b',"aborted":[[7,12,0,130,140]]'
    rewritten(tmp_path / FILE_NAME, 2, b',"producer_count":2', by=aborted)
    loaded, _ = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert told(loaded) == (written.transactions.open, [[7, 12, 0, 130, 140]])
    assert (loaded.producers == written.producers).all()


def test_the_sealed_end_replaces_a_missing_compacted_end(
    tmp_path: Path,
) -> None:
    """Data fault 22: a data directory of an earlier version."""
    written = checkpoint()
    written.partitions = [PartitionCheckpoint(7, [(3, 0)], 4, 30, 20, -1, 500, 77, 10, 15)]
    written.transactions = TransactionsCopy(written.transactions.open, [])
    written.save(OsDisk(), tmp_path)
    assert told_end(tmp_path) == 10
    rewritten(tmp_path / FILE_NAME, 2, b"500,77,10,15]", by=b"500,77]")
    assert told_end(tmp_path) == 20


def test_before_version_4_a_transaction_at_the_log_start_may_have_begun_before(
    tmp_path: Path,
) -> None:
    """Its first offset was moved up to the log start, maybe within a batch: it counts from 0."""
    written = Checkpoint(
        4096,
        4096,
        1,
        [PartitionCheckpoint(7, log_start=5)],
        np.empty((0, PRODUCER_COLUMNS), np.int64),
    )
    opened = [Open(7, 1, 0, 5, 9), Open(7, 2, 0, 6, 9)]
    aborted = np.array([[7, 3, 0, 4, 8], [7, 4, 0, 6, 9], [8, 5, 0, 3, 9]])
    written.transactions = TransactionsCopy(opened, [aborted])
    written.save(OsDisk(), tmp_path)
    rewritten(tmp_path / FILE_NAME, 3, b'"position"', by=b' "position"')
    loaded, _ = Checkpoint.load(tmp_path)
    assert loaded is not None
    told_opened, told_aborted = told(loaded)
    assert [each.first_offset for each in told_opened] == [0, 6]
    assert [row[3] for row in told_aborted] == [0, 6, 3]


def told_end(directory: Path) -> int:
    loaded, _ = Checkpoint.load(directory)
    assert loaded is not None
    return loaded.partitions[0].compacted_end


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    assert Checkpoint.load(tmp_path) == (None, False)


@pytest.mark.parametrize("step", [1, 7])
def test_any_flipped_bit_is_noticed_and_the_one_before_serves(tmp_path: Path, step: int) -> None:
    checkpoint(2048).save(OsDisk(), tmp_path)
    checkpoint(4096).save(OsDisk(), tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    for at in range(0, len(good), step):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        (tmp_path / FILE_NAME).write_bytes(bad)
        loaded, is_newest = Checkpoint.load(tmp_path)
        assert loaded is not None
        assert (loaded.position, is_newest) == (2048, False), f"byte {at}"


def newer(data: bytes, version: int) -> bytes:
    """A checkpoint as a later version writes it: the check covers the magic too."""
    magic, body = data[:7] + bytes([version]), data[12:] + b"what is new"
    check = int(crc32c(np.frombuffer(magic + body, np.uint8), 0, 8 + len(body)))
    return magic + check.to_bytes(4, "little") + body


@pytest.mark.parametrize("version", [5, 6, 255])
def test_a_newer_checkpoint_is_refused_though_the_one_before_is_ours(
    tmp_path: Path, version: int
) -> None:
    checkpoint(2048).save(OsDisk(), tmp_path)
    checkpoint(4096).save(OsDisk(), tmp_path)
    path = tmp_path / FILE_NAME
    made = newer(path.read_bytes(), version)
    path.write_bytes(made)
    with pytest.raises(MadeByNewer, match=f"its format is {version}, this SMQ knows up to 4"):
        Checkpoint.load(tmp_path)
    assert path.read_bytes() == made
    path.write_bytes(made[:-1])  # Damaged: whatever it was, the one before serves.
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert (loaded.position, is_newest) == (2048, False)


def test_a_newer_checkpoint_is_refused_also_where_it_is_the_one_before(tmp_path: Path) -> None:
    checkpoint().save(OsDisk(), tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME_BEFORE).write_bytes(newer(good, 5))
    assert Checkpoint.load(tmp_path)[1]
    (tmp_path / FILE_NAME).write_bytes(good[:-1])
    with pytest.raises(MadeByNewer, match=FILE_NAME_BEFORE):
        Checkpoint.load(tmp_path)


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    checkpoint().save(OsDisk(), tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME_BEFORE).write_bytes(good[:-1])
    for length in range(len(good)):
        (tmp_path / FILE_NAME).write_bytes(good[:length])
        assert Checkpoint.load(tmp_path) == (None, False)
