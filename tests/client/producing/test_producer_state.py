"""The lock that all parts share, and whether records are taken."""

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.errors import Closed
from smq.client.producing.producer_state import ProducerState
from tests.client.interrupts import is_free


@pytest.mark.parametrize("end", ["is_draining", "is_closed"])
def test_a_producer_that_drains_or_is_closed_takes_nothing(end: str) -> None:
    state = ProducerState(SYSTEM_CLOCK)
    state.check_open()
    setattr(state, end, True)
    with pytest.raises(Closed):
        state.check_open()


def test_renew_lock_replaces_a_lock_held_at_the_fork() -> None:
    state = ProducerState(SYSTEM_CLOCK)
    held = state.lock
    with held:
        assert not is_free(state.lock)
        state.renew_lock()
        assert is_free(state.lock)
        assert not state.resolved
        assert not state.freed
