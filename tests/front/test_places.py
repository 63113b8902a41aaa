"""Those who wait without a slot: the slowest of the largest network make room."""

import asyncio

import pytest

from smq.front.places import WaitingPlaces


def ends(names: list[str], most: int) -> dict[str, str]:
    """How each wait ends of those that begin in this order, whose first letter is their network."""

    async def waiting(places: WaitingPlaces, name: str, end: asyncio.Event) -> str:
        try:
            async with places.place(name[0]):
                await end.wait()
        except TimeoutError:
            return "turned out"
        return "waited"

    async def run() -> dict[str, str]:
        places, end = WaitingPlaces(most), asyncio.Event()
        tasks = {}
        for name in names:
            tasks[name] = asyncio.create_task(waiting(places, name, end))
            await asyncio.sleep(0)
            places.invariants()
        end.set()
        found = await asyncio.wait_for(asyncio.gather(*tasks.values()), 20)
        return dict(zip(tasks, found, strict=True))

    return asyncio.run(run())


def test_a_wait_of_few_goes_on_to_its_end() -> None:
    assert ends(["a1", "a2"], 2) == {"a1": "waited", "a2": "waited"}


def test_a_newcomer_gets_the_place_of_the_slowest_of_the_largest_network() -> None:
    found = ends(["b1", "a1", "a2", "b2", "a3", "c1"], 4)
    assert [name for name, end in found.items() if end == "turned out"] == ["a1", "a2"]


def test_many_of_one_network_turn_out_their_own() -> None:
    found = ends(["a1", *(f"b{number}" for number in range(9))], 3)
    assert [name for name, end in found.items() if end == "waited"] == ["a1", "b7", "b8"]


def test_a_wait_that_is_cancelled_gives_its_place_up() -> None:
    async def run() -> None:
        places = WaitingPlaces(1)
        with pytest.raises(asyncio.CancelledError):
            async with places.place("a"):
                raise asyncio.CancelledError
        async with places.place("a"):
            await asyncio.sleep(0)
            places.invariants()

    asyncio.run(run())
