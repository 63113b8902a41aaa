"""The coordinator of a simulation draws epochs of the host's counter, as from a supervisor."""

from itertools import count
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from smq.app.process.epochs import EpochDraws
from smq.app.process.loop import Loop
from smq.testing.simulation.clock import MS, SimulatedClock
from smq.testing.simulation.epochs import DELAY_MS, EpochSocket
from smq.testing.simulation.network import Network, SimPoller

if TYPE_CHECKING:
    import socket


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def network(clock: SimulatedClock) -> Network:
    return Network(clock, 1)


@pytest.fixture
def loop(network: Network) -> Loop:
    return Loop(SimPoller(network))


@pytest.fixture
def end(network: Network, clock: SimulatedClock) -> EpochSocket:
    """The end of a coordinator whose supervisor has given 6 generations."""
    end = EpochSocket(clock, Random(1), network.next_fd(), count(7).__next__)
    network.by_fd[end.fd] = end
    return end


def draws_of(loop: Loop, end: EpochSocket) -> EpochDraws:
    return EpochDraws(loop, cast("socket.socket", end))


def test_epochs_arrive_after_a_while_in_order(
    loop: Loop, end: EpochSocket, clock: SimulatedClock
) -> None:
    drawn: list[int | None] = []
    draws = draws_of(loop, end)
    draws.draw(drawn.append)
    draws.draw(drawn.append)
    assert not end.events()
    clock.now_ns += int(DELAY_MS * MS)
    while end.events():
        loop.run_once(0)
    assert drawn == [7, 8]


def test_a_successor_leaves_the_answers_to_one_that_has_died(
    loop: Loop, end: EpochSocket, network: Network, clock: SimulatedClock
) -> None:
    drawn: list[int | None] = []
    draws_of(loop, end).draw(drawn.append)
    successors = Loop(SimPoller(network))
    draws_of(successors, end).draw(drawn.append)
    clock.now_ns += int(DELAY_MS * MS)
    while end.events():
        successors.run_once(0)
    assert drawn == [8]
