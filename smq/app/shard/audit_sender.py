"""A shard's lines for the audit log, which the coordinator writes.

Acts are sent at the end of their turn, and kept until the coordinator has answered: its successor
may then have them twice, and none is missing. All other lines go once a second. Nothing waits
for any of it.
"""

from collections.abc import Callable

from smq.app.process.clock import now
from smq.app.process.peers import Peers
from smq.security.audit import Audit
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import Audited

LINES_MAX = 500  # In a message, which costs both loops a millisecond.
WAITING_MAX = 10_000  # While the coordinator is away: some megabytes.


class AuditSender:
    """Sends what there is to tell, one message at a time."""

    def __init__(self, audit: Audit, peers: Peers, say: Callable[[str], object]) -> None:
        self._audit, self._peers, self._say = audit, peers, say
        self._under_way: Audited | None = None
        self._has_failed = False  # Then it is tried again in a second, and not each turn.

    def tell_acts(self) -> None:
        """Send acts, at the end of a turn."""
        if self._audit.acts and not self._has_failed:
            self._send()

    def tell(self) -> None:
        """Send all that is due, once a second."""
        audit, moment = self._audit, now()
        audit.passed_on = audit.take_accesses(moment)
        self._drop_more_than_wait()
        if audit.acts or audit.passed_on:
            self._send()

    def _drop_more_than_wait(self) -> None:
        acts, accesses = self._audit.acts, self._audit.passed_on
        lost_count = max(0, len(acts) - WAITING_MAX) + max(0, len(accesses) - WAITING_MAX)
        del acts[WAITING_MAX:], accesses[WAITING_MAX:]
        if lost_count:
            self._say(f"audit: {lost_count} lines are lost: the coordinator does not answer")

    def _send(self) -> None:
        if self._under_way is not None:
            return
        audit = self._audit
        lines = Audited(audit.acts[:LINES_MAX], audit.passed_on[:LINES_MAX])
        del audit.acts[:LINES_MAX], audit.passed_on[:LINES_MAX]
        self._under_way = lines
        self._peers.ask_coordinator(lines, self._answered)

    def _answered(self, answer: object) -> None:
        lines, self._under_way = self._under_way, None
        assert lines is not None, "there is one question at a time"
        self._has_failed = isinstance(answer, Failed)
        if self._has_failed:
            self._audit.acts[:0] = lines.acts
            self._audit.passed_on[:0] = lines.accesses

    def close(self) -> None:
        """Say what nobody has taken: acts are not lost in silence."""
        waiting = [*(self._under_way.acts if self._under_way else ()), *self._audit.take_acts()]
        for line in waiting:
            self._say(f"audit: the coordinator has not answered that it has {line}")
