"""The front's lines for the audit log, which the coordinator writes: who may not do what he asked
for by HTTP, who has logged in, and who has failed to; and who has ended a session.

Once a second a thread asks the coordinator to take what is due; nothing waits for it. While it is
away lines wait, up to WAITING_MAX.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from smq.app.process.asker import Asker
from smq.app.process.clock import monotonic_ms, now
from smq.front.logins import HttpLogins
from smq.model.errors import StoreError
from smq.security.audit import Audit
from smq.wire.internal.messages import Audited

TELL_S = 1.0
ANSWER_S_MAX = 1.0  # A stop waits for it once.
LINES_MAX = 500  # In a message, which costs the coordinator a millisecond.
WAITING_MAX = 10_000  # Some megabytes.


class AuditTeller:
    """Tells the coordinator what there is, and the operator of failed logins."""

    def __init__(
        self,
        audit: Audit,
        coordinator: Path,
        say: Callable[[str], object],
        logins: HttpLogins | None = None,
    ) -> None:
        self._audit, self._say, self._logins = audit, say, logins
        self._acts = list[str]()  # Until the coordinator has taken them.
        self._asker, self._thread = Asker(coordinator, ANSWER_S_MAX), CapacityLimiter(1)

    async def keep_telling(self) -> None:
        """Tell for ever."""
        while True:
            await asyncio.sleep(TELL_S)
            await self.tell()

    async def tell(self) -> None:
        """Tell what is due."""
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
                await run_sync(self._asker.ask, question, limiter=self._thread)
            except StoreError:
                return  # In a second it is tried again.
            del self._acts[:LINES_MAX], waiting[:LINES_MAX]

    def _notice_failures(self) -> None:
        if self._logins is not None:
            self._logins.notice_failures(monotonic_ms())
            for notice in self._logins.notices:
                self._say(notice)
            self._logins.notices.clear()
