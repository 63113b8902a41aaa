"""KeyboardInterrupt wherever a signal may raise it: after any call, in any function."""

import dis
import sys
import threading
from _thread import RLock
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}  # Then CPython looks for signals.


def code_of(*functions: Callable[..., Any]) -> set[CodeType]:
    """The code of functions and methods."""
    return {function.__code__ for function in functions}


def code_of_classes(*classes: type, without: set[str]) -> set[CodeType]:
    """The code of all methods of some classes, but for those of these names."""
    return {
        each.__code__
        for of in classes
        for each in vars(of).values()
        if isinstance(each, FunctionType) and each.__name__ not in without
    }


def is_interrupted(work: Callable[[], object], codes: set[CodeType], number: int) -> bool:
    """Do the work, with an interrupt at its given place in some code; False: it has no so many."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event != "call" or frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        opcodes, before = frame.f_code.co_code, [-1]

        def look(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if event == "opcode":
                at, before[0] = before[0], frame.f_lasti
                left -= at >= 0 and dis.opname[opcodes[at]] in LOOKS
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return look

        return look

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(outer)
    return False


def is_free(lock: RLock, wait_s: float = 0) -> bool:
    """Whether another thread can have it, within that time if others use it too."""
    found: list[bool] = []

    def take() -> None:
        found.append(lock.acquire(timeout=wait_s))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]
