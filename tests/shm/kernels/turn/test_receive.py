"""The requests that a turn receives, and those it leaves to the loop."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.base.words import HEAD_PARSED, STOP_FETCH_LEFT, STOP_NEED_MORE, STOP_OTHER_API
from shm.kernels.turn.parked import PARKED_COUNT
from shm.kernels.turn.words import (
    HAS_IDLED,
    LEFT_FD,
    LEFT_STOP,
    LOOPS,
    PARKED,
    RECEIVED,
)
from tests.shm.kernels.turn_rig import ONE, OTHER, Turns, answered, fetch_of


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path / "wal", clients=2)
    yield turns
    turns.close()


@pytest.mark.parametrize("state", [LOOPS, PARKED])
def test_a_connection_that_is_the_loops_is_not_received_from(turns: Turns, state: int) -> None:
    client, ours = turns.pairs[0]
    turns.clients[ours.fileno()] = state
    client.send(ONE)
    turn = turns.take()
    assert (turn[RECEIVED], turn[HAS_IDLED]) == (0, 0)
    assert ours.recv(1 << 16) == ONE


@pytest.mark.parametrize(
    ("sent", "stop"), [(ONE + ONE[:-1], STOP_NEED_MORE), (ONE + OTHER, STOP_OTHER_API)]
)
def test_bytes_that_are_no_whole_requests_are_left_with_their_plan(
    turns: Turns, sent: bytes, stop: int
) -> None:
    client, ours = turns.pairs[0]
    client.send(sent)
    turn = turns.take()
    assert (turn[LEFT_FD], turn[LEFT_STOP]) == (ours.fileno(), stop)
    assert bytes(turns.data[: len(sent)]) == sent
    assert answered(client) == 0
    assert turns.high_watermark(10) == 0


def test_a_fetch_is_answered_from_what_is_there(turns: Turns) -> None:
    (producer, _), (consumer, ours) = turns.pairs
    producer.send(ONE)
    turns.take()
    consumer.send(fetch_of(0))
    turn = turns.take()
    assert (turn[HAS_IDLED], turn[LEFT_FD], answered(consumer)) == (1, -1, 1)
    assert turns.clients[ours.fileno()] > 1  # When it was last used.


@pytest.mark.parametrize(
    "sent", [fetch_of(0) * 2, fetch_of(0)[:-1], fetch_of(99), ONE + fetch_of(0)]
)
def test_two_fetches_half_a_one_one_in_error_and_one_behind_an_ack_are_left(
    turns: Turns, sent: bytes
) -> None:
    client, ours = turns.pairs[0]
    client.send(sent)
    turn = turns.take()
    assert turn[LEFT_FD] == ours.fileno()
    assert bytes(turns.data[: len(sent)]) == sent
    is_left = sent == fetch_of(99)
    assert (turns.plan[HEAD_PARSED] == STOP_FETCH_LEFT) == is_left
    assert turns.parked[0][PARKED_COUNT] == answered(client) == 0
