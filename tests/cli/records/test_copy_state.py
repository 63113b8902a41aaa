"""The state of a copy is read as it was written, and nothing else is taken for it."""

from pathlib import Path

import pytest

from smq.cli.records.copy_state import ClusterTopic, CopiedPartition, State, read_state, write_state
from smq.cli.records.raw_batches import ProducerIdentity

A, B = ClusterTopic("cluster", "a", "1"), ClusterTopic("cluster", "b", "2")


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert read_state(path, A, B) == State()
    state = State(
        {0: CopiedPartition(5, 3, 0, [(4, 6), (9, 20)], 8), 1: CopiedPartition(0, 0, 0, [])},
        ProducerIdentity(7, 1),
    )
    write_state(path, A, B, state)
    assert read_state(path, A, B) == state
    write_state(path, A, B, State({}, None))
    assert read_state(path, A, B) == State({}, None)


def test_a_state_of_version_1_has_pairs_and_names_without_ids(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(
        '{"version": 1, "source": "cluster/a", "destination": "cluster/b", '
        '"partitions": {"0": [5, 3]}}'
    )
    assert read_state(path, A, B) == State({0: CopiedPartition(5, 3, 3, [])}, None)


def test_a_state_of_version_2_has_no_epochs(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(
        '{"version": 2, "source": "cluster/a/1", "destination": "cluster/b/2", '
        '"partitions": {"0": [5, 3, 1, [[4, 6]]]}}'
    )
    assert read_state(path, A, B) == State({0: CopiedPartition(5, 3, 1, [(4, 6)])}, None)


@pytest.mark.parametrize(("end", "place"), [(3, (5, 0)), (4, (6, 0)), (9, (20, 0)), (7, (5, 4))])
def test_where_the_destination_ends_tells_the_sources_offset(
    end: int, place: tuple[int, int]
) -> None:
    """Data fault 24, its kind: as many records of the source as the destination had beyond the pair
    were passed over, though compaction had removed some of those."""
    assert CopiedPartition(5, 3, 0, [(4, 6), (9, 20)]).place(end) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        pytest.param("[" * 200_000, id="deep"),
        "{}",
        '{"version": 3}',
        '{"version": 2, "source": "cluster/a/1", "destination": "cluster/b/3", "partitions": {}}',
        '{"version": 2, "source": "cluster/a", "destination": "cluster/b", "partitions": {}}',
        '{"version": 1, "source": "cluster/a", "destination": "cluster/c", "partitions": {}}',
        '{"version": 1, "source": "cluster/a", "destination": "cluster/b"}',
        '{"version": 2, "source": "cluster/a/1", "destination": "cluster/b/2", "partitions": 1}',
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(SystemExit, match="smq: "):
        read_state(path, A, B)
