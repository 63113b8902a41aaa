"""Plans to move a group's offsets, and the files that hold offsets."""

import json

import pytest

from smq.cli.group.offset_plan import PartitionRange, duration_ms, plan, read_offsets, shifted
from smq.client.names import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_a_plan_stays_within_what_a_partition_has() -> None:
    ranges = {A0: PartitionRange(5, 9), A1: PartitionRange(5, 9)}
    moves = plan({A1: 100, A0: 0}, {A0: 7}, ranges)
    assert [(each.name, each.before, each.after, each.lag) for each in moves] == [
        (A0, 7, 5, 4),
        (A1, None, 9, 0),
    ]


def test_only_committed_offsets_can_be_shifted() -> None:
    assert shifted({A0: 7}, [A0], -3) == {A0: 4}
    with pytest.raises(ValueError, match="no committed offset in a-1"):
        shifted({A0: 7}, [A0, A1], 1)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("5ms", 5), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)],
)
def test_durations_have_a_unit(text: str, meant: int) -> None:
    assert duration_ms(text) == meant


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "5w", "9" * 13 + "s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        duration_ms(text)


def test_csv_json_and_plans_hold_offsets() -> None:
    rows = [
        {"topic": "a", "partition": 0, "offset": 4},
        {"topic": "a", "partition": 1, "offset": 6},
    ]
    for text in ("a,0,4\n\na,1,6\n", json.dumps(rows), json.dumps({"offsets": rows})):
        assert read_offsets(text) == {A0: 4, A1: 6}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,0",
        "a,x,4",
        "a,0,-1",
        "a,0,99999999999999999999",
        ",0,4",
        "a,0,4\na,0,5",
        "{",
        "[1]",
        "{}",
        pytest.param("[" * 200_000, id="deep"),
        '[{"topic": "a", "partition": 0, "offset": null}]',
        '[{"topic": "a", "partition": true, "offset": 1}]',
    ],
)
def test_an_invalid_offsets_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_offsets(text)
