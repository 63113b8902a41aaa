"""Answers to a process wait until it takes those before; of those in parts the oldest grows."""

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import ref

import pytest

from smq.app.coordinator.outlet import MAKING_BYTES_MAX, ROOM_BYTES, Outlet


class FakeLink:
    """A link whose other side takes nothing by itself."""

    def __init__(self) -> None:
        self.unsent_bytes, self.closed = 0, False

    def send(self, *frame: bytes) -> None:
        self.unsent_bytes += sum(map(len, frame))


def outlet_of(link: FakeLink) -> Outlet:
    untyped: Any = link
    return Outlet(untyped)


def parts_of(size: int) -> Any:
    """An answer in the making; hashed by identity, as answers are."""

    class FakeParts:
        def __init__(self) -> None:
            self.size = size

    return FakeParts()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only reference counts free anything."""
    gc.disable()
    yield
    gc.enable()


def test_work_waits_in_order_while_there_is_no_room() -> None:
    link, done = FakeLink(), list[int]()
    outlet = outlet_of(link)

    def work(number: int) -> Any:
        def make() -> None:
            done.append(number)
            outlet.put(bytes(ROOM_BYTES))

        return make

    for number in range(3):
        outlet.do(work(number))
    outlet.go_on()
    assert done == [0]
    outlet.send()
    outlet.go_on()
    assert done == [0]
    link.unsent_bytes = 0
    assert outlet.has_work
    outlet.go_on()
    assert done == [0, 1]


@pytest.mark.usefixtures("no_collector")
def test_a_closed_outlet_frees_its_unmade_answers() -> None:
    """It refers to the outlet, and the coordinator's collector looks only at what is young: each
    shard that died left its unmade answers, 100 MB at most, for ever."""
    link = FakeLink()
    outlet, parts = outlet_of(link), parts_of(7)
    freed = ref(parts)
    link.unsent_bytes = ROOM_BYTES
    outlet.do(partial(outlet.put, b"an answer"))
    outlet.grown(parts)
    outlet.hold(parts, partial(outlet.grown, parts))
    outlet.drop()
    del parts
    assert freed() is None
    link.closed = True
    outlet.do(partial(outlet.put, b"another"))
    assert not outlet.has_work
    freed = ref(outlet)
    del outlet
    assert freed() is None


def test_a_closed_link_gets_nothing_more() -> None:
    link, done = FakeLink(), list[int]()
    outlet = outlet_of(link)
    link.unsent_bytes = ROOM_BYTES
    outlet.do(lambda: done.append(1))
    link.unsent_bytes, link.closed = 0, True
    outlet.go_on()
    assert not done


def test_all_answers_in_parts_grow_while_they_are_small_then_the_oldest_one() -> None:
    link, released = FakeLink(), list[int]()
    outlet = outlet_of(link)
    first, second = parts_of(MAKING_BYTES_MAX - 1), parts_of(1)
    for parts in (first, second):
        assert outlet.may_grow(parts)
        outlet.grown(parts)
    assert outlet.may_grow(first)
    assert not outlet.may_grow(second)
    outlet.hold(second, lambda: released.append(2))
    outlet.go_on()
    assert not released
    outlet.ended(first)
    outlet.go_on()
    assert released == [2]
    assert outlet.may_grow(second)


def test_the_oldest_waits_for_room_only() -> None:
    link, released = FakeLink(), list[int]()
    outlet = outlet_of(link)
    parts = parts_of(2 * MAKING_BYTES_MAX)
    outlet.grown(parts)
    link.unsent_bytes = ROOM_BYTES
    assert not outlet.may_grow(parts)
    outlet.hold(parts, lambda: released.append(1))
    outlet.go_on()
    assert not released
    link.unsent_bytes = 0
    assert outlet.has_work
    outlet.go_on()
    assert released == [1]
