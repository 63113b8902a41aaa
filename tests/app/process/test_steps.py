"""Work in steps: a step a turn, in rotation."""

from collections.abc import Callable, Iterator

import pytest

from smq.app.process.steps import Steps
from tests.app.fake_peers import TidyLoop, turn_until


@pytest.fixture
def loop() -> Iterator[TidyLoop]:
    loop = TidyLoop()
    yield loop
    loop.close()


def work(name: str, count: int, done: list[str]) -> Callable[[], bool]:
    left = [count]

    def step() -> bool:
        done.append(name)
        left[0] -= 1
        return left[0] > 0

    return step


def test_work_is_done_in_rotation_and_a_turn_takes_one_step(loop: TidyLoop) -> None:
    steps, done = Steps(loop), list[str]()
    steps.add(work("a", 3, done))
    steps.add(work("b", 1, done))
    turns = 0
    while len(steps):
        before = len(done)
        loop.run_once(0.01)
        turns += 1
        assert len(done) <= before + 1
    assert done == ["a", "b", "a", "a"]
    assert turns >= len(done)


def test_a_step_added_after_all_others_are_done_is_done(loop: TidyLoop) -> None:
    steps, done = Steps(loop), list[str]()
    for name in "ab":
        steps.add(work(name, 1, done))
        turn_until(loop, lambda: not len(steps))
    assert done == ["a", "b"]


def test_clear_drops_the_waiting_steps(loop: TidyLoop) -> None:
    steps, done = Steps(loop), list[str]()
    steps.add(work("a", 1, done))
    steps.clear()
    steps.add(work("b", 1, done))
    turn_until(loop, lambda: bool(done))
    assert done == ["b"]
