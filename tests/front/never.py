"""Turns that do not come, for tests of what waits for them."""

from collections.abc import Callable
from typing import Any

from smq.front.connection import HttpConnection
from smq.front.turns import Turns


class Never(Turns):
    """Who is not known has no turn."""

    def __init__(self, user_of: Callable[[bytes], str] = lambda _: "") -> None:
        super().__init__(user_of)
        self.waiting = list[HttpConnection]()

    def want(self, its: Any, whose: str, *, again: bool, is_known: bool = False) -> None:
        if is_known:
            assert whose == ("127.0.0.1" if its.standing.is_known else "alice")
            super().want(its, whose, again=again, is_known=is_known)
        else:
            self.waiting.append(its)
