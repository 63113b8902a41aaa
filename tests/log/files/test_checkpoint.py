"""The checkpoint file, whole and damaged."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.crc32c import crc32c
from shm.kernels.log.producers import (
    PRODUCER_BATCHES,
    PRODUCER_COLUMNS,
    R_BATCH_COUNT,
    R_BATCHES,
    R_COORDINATOR_EPOCH,
    R_EPOCH,
    R_LAST_MS,
    R_NEWEST,
    R_PARTITION,
    R_PRODUCER_ID,
)
from shm.layout import PARTITIONS_PER_LOG_MAX
from smq.log.files.adopted import PAGE_ROW, AdoptedRow, Adoption, page_of
from smq.log.files.checkpoint import (
    FILE_NAME,
    FILE_NAME_BEFORE,
    NO_TRANSACTIONS,
    RESTORED,
    VERSION,
    Aborted,
    Checkpoint,
    Implausible,
    Open,
    PartitionCheckpoint,
    TransactionsCopy,
    restored_limits,
)
from smq.log.files.disk import OsDisk
from smq.model.errors import MadeByNewer


def checkpoint(position: int = 4096) -> Checkpoint:
    partitions = [
        PartitionCheckpoint(7, [(0, 0), (3, 120)], 10, 200, 150, 1_700, 4_000, 55),
        PartitionCheckpoint(2**31),
    ]
    producers = np.arange(2 * PRODUCER_COLUMNS, dtype=np.int64).reshape(2, -1)
    producers[:, R_BATCH_COUNT], producers[:, R_NEWEST] = (3, 5), (2, 4)
    transactions = TransactionsCopy(
        [Open(7, 11, 3, 150, 1_700), Open(2**31, 2**40, 0, 0, 0)],
        [np.array([Aborted(7, 12, 0, 130, 140), Aborted(7, 2**40, 0, 128, 141)])],
    )
    row = AdoptedRow(3, 200, 150, 150, 1_700, 4_000, 55, 2, 0, 0)
    page = page_of(PAGE_ROW, np.array([row], np.int64))
    adoptions = [Adoption(7, 9, 1, 200, 2, 2048, [page])]
    return Checkpoint(position, 2048, 9, partitions, producers, transactions, adoptions)


def told(loaded: Checkpoint) -> tuple[list[Open], list[list[int]]]:
    """Its transactions, for comparing."""
    kept = loaded.transactions
    return kept.open, [row for rows in kept.aborted for row in rows.tolist()]


def rewritten(path: Path, version: int, cut: bytes, *, by: bytes = b"") -> None:
    """Make a checkpoint one of an earlier version, which has other text."""
    text, words = parts_of(path)
    assert cut in text
    craft(path, text.replace(cut, by), words, version)


def parts_of(path: Path) -> tuple[bytes, np.ndarray]:
    """The JSON of a checkpoint, and its words."""
    data = path.read_bytes()
    end = 16 + int.from_bytes(data[12:16], "little")
    return data[16:end], np.frombuffer(data[end:], np.int64).copy()


def craft(path: Path, text: bytes, words: np.ndarray, version: int = 4) -> None:
    """Write a checkpoint of any content, with a right check."""
    body = len(text).to_bytes(4, "little") + text + words.tobytes()
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
    [adoption] = loaded.adoptions
    assert adoption.head == written.adoptions[0].head
    assert adoption.row == written.adoptions[0].row


def test_a_producer_without_batches_is_read_though_an_earlier_log_wrote_none_as_its_newest(
    tmp_path: Path,
) -> None:
    written = checkpoint()
    written.producers[0, R_BATCH_COUNT], written.producers[0, R_NEWEST] = 0, -1
    written.save(OsDisk(), tmp_path)
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert loaded.producers[:, R_NEWEST].tolist() == [PRODUCER_BATCHES - 1, 4]


def test_a_checkpoint_of_version_1_has_no_transactions(tmp_path: Path) -> None:
    written = checkpoint()
    written.transactions, written.adoptions = NO_TRANSACTIONS, []
    written.save(OsDisk(), tmp_path)
    rewritten(
        tmp_path / FILE_NAME, 1, b',"producer_count":2,"aborted_count":0,"adoptions":[],"open":[]'
    )
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert loaded.partitions == written.partitions
    assert told(loaded) == ([], [])
    assert (loaded.producers == written.producers).all()


def test_a_checkpoint_of_version_2_has_aborted_transactions_in_its_text(tmp_path: Path) -> None:
    written = checkpoint()
    written.transactions = TransactionsCopy(written.transactions.open, [])
    written.adoptions = []
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
    written.adoptions = []
    written.save(OsDisk(), tmp_path)
    assert told_end(tmp_path) == 10
    rewritten(tmp_path / FILE_NAME, 2, b"500,77,10,15,0,0]", by=b"500,77]")
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


@pytest.mark.parametrize("version", [VERSION + 1, 255])
def test_a_newer_checkpoint_is_refused_though_the_one_before_is_ours(
    tmp_path: Path, version: int
) -> None:
    checkpoint(2048).save(OsDisk(), tmp_path)
    checkpoint(4096).save(OsDisk(), tmp_path)
    path = tmp_path / FILE_NAME
    made = newer(path.read_bytes(), version)
    path.write_bytes(made)
    with pytest.raises(
        MadeByNewer, match=f"its format is {version}, this SMQ knows up to {VERSION}"
    ):
        Checkpoint.load(tmp_path)
    assert path.read_bytes() == made
    path.write_bytes(made[:-1])  # Damaged: whatever it was, the one before serves.
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert (loaded.position, is_newest) == (2048, False)


def test_a_newer_checkpoint_is_refused_also_where_it_is_the_one_before(tmp_path: Path) -> None:
    checkpoint().save(OsDisk(), tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME_BEFORE).write_bytes(newer(good, VERSION + 1))
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


def refused(directory: Path, text: bytes, words: np.ndarray) -> None:
    """Assert that the one before serves instead of this one, and that a restore can tell why."""
    path = directory / FILE_NAME
    craft(path, text, words)
    loaded, is_newest = Checkpoint.load(directory)
    assert loaded is not None
    assert (loaded.position, is_newest) == (2048, False)
    with pytest.raises(Implausible, match="no log writes what is in it: somebody has changed it"):
        Checkpoint.of(path.read_bytes(), path)


@pytest.fixture
def crafted(tmp_path: Path) -> Path:
    """A log's directory with two checkpoints."""
    checkpoint(2048).save(OsDisk(), tmp_path)
    checkpoint(4096).save(OsDisk(), tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b"1", b"\xff", b"[" * 100_000, b'{"position":' + b"9" * 5000 + b"}",
        b'{"position":64,"synced":0,"generation":1,"producer_count":2,"partitions":7}',
        b'{"position":64,"synced":0,"generation":1,"producer_count":2,"partitions":{"a":1}}',
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_shape_counts_as_damaged(crafted: Path, text: bytes) -> None:
    """Each start ended with a trace."""
    _, words = parts_of(crafted / FILE_NAME)
    refused(crafted, text, words)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ('"position":4096', each)
        for each in (
            '"position":-64', '"position":4097', f'"position":{2**63 - 64}', '"position":null',
            '"position":4096.0', '"position":true', '"position":"4096"', '"other":4096',
        )
    ]
    + [('"synced":2048', f'"synced":{each}') for each in (-1, 4097)]
    + [('"generation":9', f'"generation":{each}') for each in (2**31, 2**70)]
    + [
        ('"producer_count":2', f'"producer_count":{each}')
        for each in (-1, 1, 3, 2**70, '"2"', "[2]", "2.0", "true")
    ]
    + [
        ("[7,11,3,150,1700]", each)
        for each in (
            "7", "[7,11,3,150]", "[7,11,3,150,1700,1]", "[-1,11,3,150,1700]",
            f"[{2**32},11,3,150,1700]", f"[7,{2**63},3,150,1700]", "[7,11,32768,150,1700]",
            "[7,11,3,-1,1700]", f"[7,11,3,{2**63 - 1},1700]", f"[7,11,3,150,{2**63}]",
            '[7,11,3,"150",1700]', "[[],11,3,150,1700]",
        )
    ]
    + [("[7,[[0,0],[3,120]],", each) for each in (
        f"[{2**70},[[0,0]],", f"[{2**32},[[0,0]],", "[-1,[[0,0]],", "[1.5,[[0,0]],", "[7,7,",
        "[7,[7],", "[7,[[0,0,0]],", "[7,[[3,0],[3,120]],", "[7,[[3,0],[0,120]],",
        f"[7,[[{2**31},0]],", f"[7,[[0,{2**63 - 1}]],", "[7,[[0,-1]],", '[7,[["a",0]],', "[[],[],",
    )]
    + [("10,200,150,1700,4000,55,0,0,0,0]", each) for each in (
        "10,200,150,1700,4000,55,0,0,0,0,0]", "-1,200,150,1700,4000,55,0,0,0,0]",
        f"10,{2**63 - 1},150,1700,4000,55,0,0,0,0]", f"10,200,{2**63 - 1},1700,4000,55,0,0,0,0]",
        f"10,200,150,{2**63},4000,55,0,0,0,0]", f"10,200,150,1700,4000,{2**63},0,0,0,0]",
        "10,200,150,1700,4000,55,-1,0,0,0]", "10,200,150,1700,4000,55,0,null,0,0]",
        "10,200,150,1700,4000,55,0,0,-1,0]", "10,200,150,1700,4000,55,0,0,0,2]",
        "10,200,150,1700,4000,55,0,0,0,true]",
    )]
    + [('"aborted_count":2', f'"aborted_count":{each}') for each in (-1, 1, 3, 2**70, '"2"')]
    + [('"adoptions":[[7,9,1,200,2,2048,1]]', f'"adoptions":{each}') for each in (
        "[]", "[7]", "[[7,9,1,200,2,2048]]", "[[7,9,1,200,2,2048,0]]", "[[7,9,1,200,2,2048,2]]",
        "[[-1,9,1,200,2,2048,1]]", f"[[7,{2**31},1,200,2,2048,1]]", "[[7,9,1,-1,2,2048,1]]",
        "[[7,9,1,199,2,2048,1]]", "[[7,9,1,200,0,2048,1]]", f"[[7,9,1,200,2,{2**63 - 1},1]]",
        '[["7",9,1,200,2,2048,1]]',
    )],
)  # fmt: skip
def test_a_checkpoint_with_a_number_that_no_log_has_counts_as_damaged(
    crafted: Path, said: str, instead: str
) -> None:
    """A partition's number of 71 bits ended each start."""
    text, words = parts_of(crafted / FILE_NAME)
    assert said.encode() in text
    refused(crafted, text.replace(said.encode(), instead.encode(), 1), words)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (R_BATCH_COUNT, 2**40), (R_BATCH_COUNT, 6), (R_BATCH_COUNT, -1), (R_NEWEST, 5),
        (R_NEWEST, -1), (R_NEWEST, 2**50), (R_PARTITION, -1), (R_PARTITION, 2**32),
        (R_PARTITION, 2**63 - 1), (R_EPOCH, 2**15), (R_EPOCH, -(2**15) - 1),
        (R_BATCHES, 2**31), (R_BATCHES + 4 * 4 + 1, 2**31), (R_COORDINATOR_EPOCH, 2**31 + 1),
        (2 * PRODUCER_COLUMNS, -1), (2 * PRODUCER_COLUMNS + 4, 2**63 - 1),
    ],
)  # fmt: skip
def test_a_checkpoint_with_a_row_that_no_log_writes_counts_as_damaged(
    crafted: Path, column: int, value: int
) -> None:
    """A row that claimed 2^40 batches killed the shard at each start, and one with 22 changed the
    rows of other producers."""
    text, words = parts_of(crafted / FILE_NAME)
    words[column] = value
    refused(crafted, text, words)


@pytest.mark.parametrize("more", [-1, 1, -PRODUCER_COLUMNS])
def test_a_checkpoint_with_a_part_of_a_row_counts_as_damaged(crafted: Path, more: int) -> None:
    text, words = parts_of(crafted / FILE_NAME)
    refused(crafted, text, np.resize(words, len(words) + more))


def test_a_checkpoint_with_more_partitions_than_a_log_has_counts_as_damaged(crafted: Path) -> None:
    text, words = parts_of(crafted / FILE_NAME)
    row = b"[1,[],0,0,0,0,0,0,0,0],"
    more = text.replace(b'"partitions":[', b'"partitions":[' + row * PARTITIONS_PER_LOG_MAX)
    refused(crafted, more, words)


@pytest.mark.parametrize("more", [b"{}", b'"a"', b"[" + b"[]," * 9999 + b"[]]"])
def test_a_text_that_takes_memory_out_of_proportion_is_not_parsed(
    crafted: Path, more: bytes
) -> None:
    """40 MiB of empty lists in a field that nobody knows took 1 GiB."""
    text, words = parts_of(crafted / FILE_NAME)
    refused(crafted, text.replace(b'"partitions":', b'"other":' + more + b',"partitions":'), words)


def test_a_log_of_many_empty_partitions_and_short_epochs_is_read_back(tmp_path: Path) -> None:
    written = checkpoint()
    epochs = [(each, 0) for each in range(9)]
    written.partitions = [PartitionCheckpoint(1, epochs if n % 2 else []) for n in range(9999)]
    written.save(OsDisk(), tmp_path)
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert loaded.partitions == written.partitions


def test_a_restored_checkpoint_leaves_room_and_is_short(tmp_path: Path) -> None:
    written, place = checkpoint(), RESTORED.place_max
    for log_end, fits in ((place, True), (place + 1, False)):
        written.partitions = [PartitionCheckpoint(7, log_end=log_end)]
        written.save(OsDisk(), tmp_path)
        content = (tmp_path / FILE_NAME).read_bytes()
        assert Checkpoint.of(content, tmp_path) is not None
        if fits:
            assert Checkpoint.of(content, tmp_path, RESTORED) is not None
            for less in (RESTORED._replace(text_bytes_max=100), RESTORED._replace(lists_max=1)):
                with pytest.raises(Implausible):
                    Checkpoint.of(content, tmp_path, less)
        else:
            with pytest.raises(Implausible):
                Checkpoint.of(content, tmp_path, RESTORED)


@pytest.mark.parametrize("more", [b"[0,0],", b"0,"])
def test_a_long_text_of_few_partitions_is_not_restored(crafted: Path, more: bytes) -> None:
    """Ten million lists of two numbers took 816 MiB."""
    text, words = parts_of(crafted / FILE_NAME)
    limits = restored_limits(10, 2**31 - 1)
    count = limits.lists_max if b"[" in more else 5 * limits.lists_max
    longer = text.replace(b'"partitions":', b'"other":[' + more * count + b'0],"partitions":')
    craft(crafted / FILE_NAME, longer, words)
    content = (crafted / FILE_NAME).read_bytes()
    tracemalloc.start()
    with pytest.raises(Implausible):
        Checkpoint.of(content, crafted, limits)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * len(content)


@pytest.mark.parametrize(
    ("epochs", "generation"),
    [([(-1, 0), (3, 5)], 3), ([(0, 0), (4, 5)], 3), ([], 4), ([], -1)],
)
def test_epochs_and_generations_that_no_snapshot_has_are_not_restored(
    tmp_path: Path, epochs: list[tuple[int, int]], generation: int
) -> None:
    written = checkpoint()
    written.adoptions = []
    cases = (3, [(0, 0), (3, 5)], True), (generation, epochs, False)
    for taken, history, fits in cases:
        written.generation = taken
        written.partitions = [PartitionCheckpoint(7, history, log_end=9)]
        written.save(OsDisk(), tmp_path)
        content = (tmp_path / FILE_NAME).read_bytes()
        assert Checkpoint.of(content, tmp_path) is not None
        if fits:
            assert Checkpoint.of(content, tmp_path, restored_limits(1, 3)) is not None
        else:
            with pytest.raises(Implausible):
                Checkpoint.of(content, tmp_path, restored_limits(1, 3))


def test_the_greatest_numbers_of_a_log_are_read_back(tmp_path: Path) -> None:
    written = checkpoint()
    last, place, low = 2**63 - 1, 2**62 - 1, -(2**63)
    epochs = [(-1, 0), (2**31 - 1, place)]
    bounds = place, place, place, low, last, last, place, place
    written.partitions = [PartitionCheckpoint(2**32 - 1, epochs, *bounds)]
    written.producers[0, [R_PARTITION, R_PRODUCER_ID, R_LAST_MS]] = 2**32 - 1, low, last
    written.producers[0, [R_EPOCH, R_COORDINATOR_EPOCH]] = 2**15 - 1, 2**31
    written.producers[1, [R_EPOCH, R_COORDINATOR_EPOCH]] = -(2**15), 1 - 2**31
    written.producers[0, R_BATCHES : R_BATCHES + 4] = -1, 2**31 - 1, place, last
    written.transactions = TransactionsCopy(
        [Open(2**32 - 1, last, 2**15 - 1, place, last)],
        [np.array([Aborted(2**32 - 1, last, 2**15 - 1, place, place)])],
    )
    written.save(OsDisk(), tmp_path)
    loaded, is_newest = Checkpoint.load(tmp_path)
    assert loaded is not None
    assert is_newest
    assert loaded.partitions == written.partitions
    assert told(loaded) == told(written)
    assert (loaded.producers == written.producers).all()
