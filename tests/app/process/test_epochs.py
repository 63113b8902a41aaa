"""Epochs that the coordinator draws from the supervisor's counter."""

import socket
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from smq.app.process.epochs import EpochDraws, epoch_sockets, give_epochs
from smq.app.process.inheritance import COORDINATOR, SUPERVISOR
from smq.app.process.loop import Loop

Ends = dict[str, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    sockets = epoch_sockets()
    yield sockets
    for each in sockets.values():
        each.close()


def served(ends: Ends, take: Callable[[], int]) -> tuple[Loop, EpochDraws]:
    loop = Loop()
    give_epochs(loop, ends[SUPERVISOR], take)
    return loop, EpochDraws(loop, ends[COORDINATOR])


def test_each_draw_gets_an_epoch_of_its_own(ends: Ends) -> None:
    loop, draws = served(ends, count(7).__next__)
    drawn: list[int | None] = []
    for _ in range(2):
        draws.draw(drawn.append)
    while len(drawn) < 2:
        loop.run_once(1000)
    assert drawn == [7, 8]


def test_a_counter_that_cannot_be_raised_gives_none(ends: Ends) -> None:
    def full() -> int:
        raise OSError(28, "full")

    loop, draws = served(ends, full)
    drawn: list[int | None] = []
    draws.draw(drawn.append)
    while not drawn:
        loop.run_once(1000)
    assert drawn == [None]


def test_an_answer_for_the_coordinator_before_is_left(ends: Ends) -> None:
    loop = Loop()
    give_epochs(loop, ends[SUPERVISOR], count(7).__next__)
    drawn: list[int | None] = []
    EpochDraws(Loop(), ends[COORDINATOR]).draw(drawn.append)
    loop.run_once(1000)
    draws = EpochDraws(loop, ends[COORDINATOR])
    draws.draw(drawn.append)
    while not drawn:
        loop.run_once(1000)
    assert drawn == [8]


def test_an_answer_that_is_forgotten_is_left(ends: Ends) -> None:
    loop, draws = served(ends, count(7).__next__)
    drawn: list[int | None] = []
    draws.draw(drawn.append)
    draws.forget()
    draws.draw(drawn.append)
    while not drawn:
        loop.run_once(1000)
    assert drawn == [8]


def test_without_a_supervisor_there_is_none() -> None:
    drawn: list[int | None] = []
    EpochDraws(Loop(), None).draw(drawn.append)
    assert drawn == [None]
