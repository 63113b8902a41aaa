"""Front's and agent's lines for the audit log, which the coordinator writes: who may not do what he
asked for by HTTP or gRPC, who has logged in, and who has failed to; and who has ended a session.

Once a second a thread asks the coordinator to take what is due; only the end of a session waits for
its line. While the coordinator is away lines wait, up to WAITING_MAX.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from smq.app.process.asker import Asker
from smq.app.process.clock import monotonic_ms, now
from smq.model.errors import StoreError
from smq.security.audit import AdminAct, Audit
from smq.security.principals import Peer
from smq.wire.internal.messages import Audited

TELL_S = 1.0
ANSWER_S_MAX = 1.0  # A stop waits for it once.
LINES_MAX = 500  # In a message, which costs the coordinator a millisecond.
WAITING_MAX = 10_000  # Some megabytes.


InThread: TypeAlias = Callable[..., Awaitable[Any]]


class Noticing(Protocol):
    """Logins that count their failures."""

    notices: list[str]

    def notice_failures(self, now_ms: int) -> None:
        """Note for the operator what has failed since the last note."""


class AuditTeller:
    """Tells the coordinator what there is, and the operator of failed logins.

    turn   a lock, where several may tell at once
    """

    turn: AbstractAsyncContextManager[object] = nullcontext()

    def __init__(
        self,
        audit: Audit,
        coordinator: Path,
        say: Callable[[str], object],
        in_thread: InThread,
        logins: Sequence[Noticing] = (),
    ) -> None:
        """`in_thread` runs a function in a thread: one at a time."""
        self._audit, self._say, self._logins = audit, say, logins
        self._acts = list[str]()  # Until the coordinator has taken them.
        self._asker, self._in_thread = Asker(coordinator, ANSWER_S_MAX), in_thread
        self._begun = self._ended = 0  # Tells are numbered: those that began, and the last to end.

    async def act(self, peer: Peer, api: str, act: AdminAct) -> None:
        """Tell of an act before it is done: then its line is on disk, or the coordinator has not
        answered for a second or two, and the line waits like others."""
        self._audit.act(peer, api, act, now())
        await self.tell()

    async def tell(self) -> None:
        """Tell what is due. Those who wait for their turn share one."""
        wanted = self._begun + 1  # It takes what is due now, whoever's it is.
        async with self.turn:  # Two would send the same lines, and forget others.
            if self._ended < wanted:
                self._begun = number = self._begun + 1
                await self._tell()
                self._ended = number

    async def _tell(self) -> None:
        self._notice_failures()
        waiting = self._audit.passed_on = self._audit.take_accesses(now())
        self._acts += self._audit.take_acts()
        for lines in (self._acts, waiting):
            if (lost_count := len(lines) - WAITING_MAX) > 0:
                del lines[WAITING_MAX:]
                self._say(f"audit: {lost_count} lines are lost: the coordinator does not answer")
        while waiting or self._acts:
            question = Audited(self._acts[:LINES_MAX], waiting[:LINES_MAX])
            try:
                await self._in_thread(self._asker.ask, question)
            except StoreError:
                return  # In a second it is tried again.
            del self._acts[:LINES_MAX], waiting[:LINES_MAX]

    def _notice_failures(self) -> None:
        for each in self._logins:
            each.notice_failures(monotonic_ms())
            for notice in each.notices:
                self._say(notice)
            each.notices.clear()
