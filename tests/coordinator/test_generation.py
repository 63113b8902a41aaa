"""A request of another generation, or for another protocol, is refused."""

from typing import Any

import pytest

from smq.coordinator.group import Group
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import LIMITS, Driver

E, S = ErrorCode, GroupState


@pytest.mark.parametrize("generation", [-1, 0, 2])
def test_another_generation_is_illegal(two: Driver, generation: int) -> None:
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        two.sync("a", generation=generation)
    assert two.heartbeat("a", generation=generation) is E.ILLEGAL_GENERATION
    assert two.commit("a", generation=generation) is E.ILLEGAL_GENERATION


@pytest.mark.parametrize("wrong", [{"protocol_type": "connect"}, {"protocol_name": "rr"}])
def test_a_sync_for_another_protocol_is_refused(two: Driver, wrong: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        two.sync("a", **wrong)
    two.sync("a", protocol_type="consumer", protocol_name="range")


def test_generations_go_on_after_a_restart_of_an_empty_group(two: Driver) -> None:
    two.leave(("a", None), ("b", None))
    two.group = Group.restore(two.saved[-1], LIMITS, two.now_ms)
    assert two.group.state is S.EMPTY
    ticket = two.join(new_id="c")
    two.wait(3000)
    assert two.joined(ticket).generation == 3
