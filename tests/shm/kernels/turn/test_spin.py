"""A process that gains by spinning continues; one that does not stops."""

import pytest

from shm.kernels.turn.spin import (
    SPIN_CREDIT_MAX,
    SPIN_LOSS,
    SPIN_PAUSE_TURNS,
    may_spin,
    new_spin,
    note_spin,
)


def test_spinning_in_vain_stops_for_a_while() -> None:
    spin, tried = new_spin(), []
    for _ in range(2 * SPIN_PAUSE_TURNS):
        may = may_spin(spin)
        if may:
            note_spin(spin, False)
        tried.append(may)
    in_vain = SPIN_CREDIT_MAX // SPIN_LOSS
    assert sum(tried) == in_vain + 1
    assert tried.index(False) == in_vain


def test_spinning_with_frequent_success_continues() -> None:
    spin = new_spin()
    for i in range(3 * SPIN_PAUSE_TURNS):
        assert may_spin(spin)
        note_spin(spin, i % 3 != 0)


def test_a_process_on_a_single_core_never_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    spin = new_spin()
    assert not any(may_spin(spin) for _ in range(3 * SPIN_PAUSE_TURNS))
