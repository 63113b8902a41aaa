"""The table of a group's states, walked."""

from smq.coordinator.group_states import TRANSITIONS, GroupState


def test_every_state_has_its_row() -> None:
    assert TRANSITIONS.keys() == set(GroupState)


def test_every_state_can_be_reached_and_every_living_one_left() -> None:
    reached, frontier = {GroupState.EMPTY}, [GroupState.EMPTY]
    while frontier:
        for state in TRANSITIONS[frontier.pop()].values():
            if state not in reached:
                reached.add(state)
                frontier.append(state)
    assert reached == set(GroupState)
    assert [state for state, causes in TRANSITIONS.items() if not causes] == [GroupState.DEAD]


def test_a_group_with_members_is_never_removed() -> None:
    removable = [state for state, causes in TRANSITIONS.items() if "removed" in causes]
    assert removable == [GroupState.EMPTY]
