"""The coordinator's part in transactional Produce requests (smq.shard.transactional): it is asked
before a transaction's first batch in a partition is appended. Only the connection's next requests
wait for that.
"""

from collections.abc import Callable
from functools import partial

from smq.app.process.clock import monotonic_ms
from smq.app.process.loop import Loop
from smq.app.process.peers import Peers
from smq.model.errors import ErrorCode
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions

# While the former transaction ends: Kafka's add.partitions.to.txn.retry.backoff.max.ms, and the
# pause before asking the coordinator again.
RETRY_MS, RETRY_AFTER_MS = 100, 4
_BUSY = int(ErrorCode.CONCURRENT_TRANSACTIONS)


class Additions:
    """Asks the coordinator to add partitions to transactions."""

    def __init__(self, loop: Loop, peers: Peers) -> None:
        self._loop, self._peers = loop, peers

    def ask(self, asked: AddPartitions, known: Callable[[list[int] | Failed], None]) -> None:
        """Ask the coordinator; ask again while it is busy with the former transaction."""
        self._ask(asked, known, monotonic_ms() + RETRY_MS)

    def _ask(
        self, asked: AddPartitions, known: Callable[[list[int] | Failed], None], due_ms: float
    ) -> None:
        def answered(said: list[int] | Failed) -> None:
            is_busy = not isinstance(said, Failed) and _BUSY in said
            if is_busy and monotonic_ms() < due_ms:
                self._loop.call_later(RETRY_AFTER_MS, partial(self._ask, asked, known, due_ms))
            else:
                known(said)

        self._peers.ask_coordinator(asked, answered)
