"""What a cell notes of an answer, and the names that it gives."""

from uuid import UUID

import pytest

from smq.wire.generated.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.oracle.batches import batch
from tests.oracle.plain import plain
from tests.oracle.rights.cell import UNKNOWN_ID, Cell, Doors


@pytest.fixture
def cell() -> Cell:
    cell = Cell(0, "d", 13, doors=Doors(0), principal="none")
    cell.ids = {"allowed": UUID(int=1), "denied": UUID(int=2)}
    cell.name_ids()
    return cell


def topic(topic_id: UUID, records: bytes) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic_id=topic_id, partitions=[PartitionData(records=records)])


def test_rows_are_noted_by_what_they_are_about_and_batches_by_their_values(cell: Cell) -> None:
    rows = [topic(UNKNOWN_ID, b""), topic(UUID(int=2), batch(b"a", b"b")), topic(UUID(int=1), b"")]
    cell.note("s", plain(FetchResponse(responses=rows), cell.names))
    noted = cell.steps["s"]["responses"]
    assert [each["topic_id"] for each in noted] == [
        "<id of allowed>",
        "<id of denied>",
        "<id of nothing>",
    ]
    assert noted[1]["partitions"][0]["records"] == [["a", "b"]]


def test_a_cell_leaves_out_numbers_that_count_on(cell: Cell) -> None:
    cell.note("s", {"error_code": 0, "producer_epoch": 7, "rows": [{"base_offset": 5}]})
    assert cell.steps["s"] == {"error_code": 0, "rows": [{}]}


def test_a_step_is_noted_once(cell: Cell) -> None:
    cell.note("s", 1)
    with pytest.raises(AssertionError, match="two steps"):
        cell.note("s", 2)


def test_the_four_topics_are_the_dialogues_own(cell: Cell) -> None:
    assert cell.all() == ["d-v13-allowed", "d-v13-new", "d-v13-denied", "d-v13-unknown"]
    assert cell.topic_ids() == [UUID(int=1), UUID(int=2), UNKNOWN_ID]
