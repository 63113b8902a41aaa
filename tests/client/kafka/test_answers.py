"""What an answer must hold, and what is told where it does not."""

import pytest

from smq.client.kafka.answers import check_partitions, number_of, only
from smq.model.errors import PeerError


@pytest.mark.parametrize("items", [[], ["a", "b"]])
def test_an_answer_about_none_or_several_is_of_no_broker(items: list[str]) -> None:
    """Of the kind of door fault 12: `smq topic create` ended with a ValueError."""
    with pytest.raises(PeerError, match=f"asked about one topic, and answers about {len(items)}"):
        only(items, "topic")


def test_the_one_item_is_given() -> None:
    assert only(["a"], "topic") == "a"


def test_a_setting_is_a_number_or_its_default() -> None:
    assert number_of({"a": "7"}, "a", 1) == 7
    assert number_of({"a": None}, "a", 1) == number_of({}, "a", 1) == 1


@pytest.mark.parametrize("said", ["x", "1e5", "9" * 5000])
def test_a_setting_that_is_no_number_raises_peer_error(said: str) -> None:
    """Of the kind of door fault 12."""
    with pytest.raises(PeerError, match=r"it says that a is '.*', which is no number"):
        number_of({"a": said}, "a", 1)


@pytest.mark.parametrize("answered", [[], [0], [0, 1, 1], [0, 1, 2], [0, 7]])
def test_an_answer_about_other_partitions_is_of_no_broker(answered: list[int]) -> None:
    """Of the kind of door fault 12."""
    check_partitions({0: 7, 1: 0}, [1, 0])
    with pytest.raises(PeerError, match="other partitions than it was asked about"):
        check_partitions([0, 1], answered)
