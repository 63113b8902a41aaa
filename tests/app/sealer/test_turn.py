"""How long a partition may be sealed while others wait."""

import pytest

from smq.app.process import clock
from smq.app.process.clock import replaced
from smq.app.sealer.pause import NEVER, Pause
from smq.app.sealer.turn import Turn

SECOND_NS = 1_000_000_000


def test_a_turn_leaves_out_the_time_without_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0]
    with replaced(lambda: 0, lambda: passed[0]):
        turn = Turn(10_000, NEVER)
        assert not turn.is_over()
        passed[0] = 10 * SECOND_NS
        assert turn.is_over()
        with monkeypatch.context() as patch:
            patch.setattr(clock, "_starved_ns", lambda: 9 * SECOND_NS)
            assert not turn.is_over()
            passed[0] = 19 * SECOND_NS
            assert turn.is_over()


def test_a_turn_leaves_out_the_time_of_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, pause = [0], Pause()

    def wait() -> int:
        passed[0] += 5 * SECOND_NS
        return 5000

    with replaced(lambda: 0, lambda: passed[0]):
        turn = Turn(10_000, pause)
        monkeypatch.setattr(pause, "wait", wait)
        assert not any(turn.is_over() for _ in range(10))
        passed[0] += 10 * SECOND_NS
        assert turn.is_over()
