"""Those who wait for their turn, against a list that is looked through."""

from hypothesis import given, strategies as st

from smq.security.fair_queue import FairQueue


def queue_of(names: list[str]) -> FairQueue[str]:
    """Those who wait, whose first letter is their address."""
    queue = FairQueue[str]()
    for name in names:
        queue.add(name, name[0])
    queue.invariants()
    return queue


def popped(queue: FairQueue[str]) -> list[str]:
    found = []
    while queue:
        found.append(queue.pop())
        queue.invariants()
    return found


def test_addresses_take_turns() -> None:
    assert popped(queue_of(["a1", "a2", "a3", "b1", "c1", "c2"])) == [
        *("a1", "b1", "c1"),
        *("a2", "c2", "a3"),
    ]


def networks() -> FairQueue[str]:
    """Nine addresses of a network, each with two, and one address of another."""
    queue = FairQueue[str]()
    for i in range(9):
        for name in (f"a{i}", f"b{i}"):
            queue.add(name, f"10.0.0.{i}")
    for name in ("c", "d"):
        queue.add(name, "10.0.1.1")
    queue.invariants()
    return queue


def test_networks_take_turns_before_their_addresses_do() -> None:
    assert popped(networks())[:5] == ["a0", "c", "a1", "d", "a2"]


def test_the_network_that_has_most_is_looked_at_before_its_addresses() -> None:
    queue = networks()
    queue.add("e", "10.0.1.1")
    assert queue.of_most() == ["a8", "b8"], "that of 10.0.1.1 has three"


def test_a_network_whose_last_one_is_gone_has_no_turn() -> None:
    queue = networks()
    for name in ("c", "d"):
        queue.discard(name)
        queue.invariants()
    assert popped(queue) == [f"{name}{i}" for name in "ab" for i in range(9)]


def test_an_address_that_comes_again_and_again_waits_behind_the_others() -> None:
    """Also if it has one at a time."""
    queue, found = queue_of(["a1", "b1", "b2"]), list[str]()
    for i in range(2, 5):
        found.append(queue.pop())
        if found[-1][0] == "a":
            queue.add(f"a{i}", "a")
    assert found == ["a1", "b1", "a2"]
    assert popped(queue) == ["b2", "a4"]


def test_a_connection_that_is_gone_has_no_turn() -> None:
    queue = queue_of(["a1", "a2", "b1"])
    for name in ("a1", "b1", "c1"):
        queue.discard(name)
        queue.invariants()
    assert "a1" not in queue
    assert "a2" in queue
    assert [*queue] == popped(queue) == ["a2"]


def test_a_queue_tells_those_of_the_address_that_has_most() -> None:
    assert queue_of(["a1", "b1", "b2", "c1"]).of_most() == ["b1", "b2"]
    assert queue_of(["a1", "b1", "c1"]).of_most() == ["c1"], "the one whose turn is last"


@given(st.lists(st.tuples(st.sampled_from("aaab+-"), st.integers(0, 5))))
def test_a_connection_waits_for_no_more_turns_than_there_are_before_it(
    moves: list[tuple[str, int]],
) -> None:
    """Those of its address, and as many of the other address."""
    queue, waits = FairQueue[str](), dict[str, int]()
    for kind, number in moves:
        name = f"{kind}{number}"
        if kind == "+" and queue:
            del waits[queue.pop()]
            waits = {each: left - 1 for each, left in waits.items()}
            assert all(left >= 0 for left in waits.values())
        elif kind == "-":
            for of in "ab":
                queue.discard(f"{of}{number}")
                waits.pop(f"{of}{number}", None)
        elif kind in "ab" and name not in queue:
            queue.add(name, kind)
            waits[name] = 2 * sum(each[0] == kind for each in waits) + 1
        queue.invariants()
        assert {*queue} == {*waits}
