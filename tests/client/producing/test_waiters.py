"""Waiters wake, or give up in time; an interrupted one still holds its lock."""

import threading

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.producing.waiters import Waiters, without
from tests.client.interrupts import code_of, is_free, is_interrupted

WAIT_S = 20.0


def test_wait_for_sleeps_without_the_lock_until_a_change() -> None:
    changes: list[int] = []
    lock = threading.RLock()
    waiters = Waiters(lock, SYSTEM_CLOCK)

    def change() -> None:
        while len(changes) < 2:
            with lock:
                if waiters:
                    changes.append(0)
                    waiters.tell_all()

    thread = threading.Thread(target=change)
    with lock:
        thread.start()
        assert waiters.wait_for(lambda: len(changes) == 2, WAIT_S)
        assert not waiters
        assert not is_free(lock)
    thread.join()
    assert is_free(lock)


def test_wait_for_returns_false_after_its_timeout() -> None:
    lock = threading.RLock()
    with lock:
        assert not Waiters(lock, SYSTEM_CLOCK).wait_for(lambda: False, 0.001)
        assert not Waiters(lock, SYSTEM_CLOCK).wait_for(lambda: False, 0.0)
        assert Waiters(lock, SYSTEM_CLOCK).wait_for(lambda: True, 0.0)
        assert Waiters(lock, SYSTEM_CLOCK).wait_for(lambda: True, None)


def test_without_holds_the_lock_again_after_an_exception() -> None:
    lock = threading.RLock()
    with lock:
        assert without(lock, lambda: is_free(lock))
        with pytest.raises(ZeroDivisionError):
            without(lock, lambda: 1 // 0)
        assert not is_free(lock)


def test_an_interrupt_anywhere_leaves_the_lock_held_until_the_block_ends() -> None:
    lock, number = threading.RLock(), 0
    codes = code_of(Waiters.wait_for, without)

    def wait() -> None:
        with lock:
            try:
                Waiters(lock, SYSTEM_CLOCK).wait_for(lambda: False, 0.001)
            finally:
                assert not is_free(lock)

    while is_interrupted(wait, codes, number):
        assert is_free(lock)
        number += 1
    assert number > 5
