"""What must not be broken off ends before an interrupt is raised."""

import signal
import threading

import pytest

from shm.interrupts import without_interrupts


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_is_raised_when_the_work_has_ended() -> None:
    done = []

    @without_interrupts
    def work(number: int) -> int:
        signal.raise_signal(signal.SIGINT)
        done.append(number)
        return number

    with pytest.raises(KeyboardInterrupt):
        work(1)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_a_handler_of_the_users_is_called_with_what_it_would_have_been() -> None:
    came = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))

    @without_interrupts
    @without_interrupts
    def work() -> int:
        signal.raise_signal(signal.SIGINT)
        assert not came
        return 7

    assert work() == 7
    assert came == [signal.SIGINT]


@pytest.mark.usefixtures("ctrl_c")
def test_without_interrupts_passes_exceptions_on_and_does_nothing_off_the_main_thread() -> None:
    @without_interrupts
    def fail() -> None:
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        fail()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    found = []
    look = without_interrupts(lambda: found.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look()
    assert found == [signal.default_int_handler, signal.SIG_IGN]
