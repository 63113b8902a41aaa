"""ListTransactions (key 66), versions 0-1 (KIP-664).

- Each transactional id is listed by the node that FindCoordinator names for it, and by no other:
  admin clients ask every node and join the answers.
- States that nothing can be in come back as unknown; filters of state and producer both apply.
- From 1: only what began so long ago (KIP-994). What never began did so in 1970, as in Kafka.

Left out: patterns (2): a regular expression of anybody's could hold the coordinator for long.
"""

from collections.abc import Iterator

from gateway.apis.find_coordinator import coordinator_of
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.states import TransactionState
from smq.store.rows import StoredTransaction
from smq.wire.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState as Listed,
)

STATES = {*TransactionState, "PrepareEpochFence"}  # The last is Kafka's: nothing is in it here.
PART_IDS = 500  # One that is listed takes some microseconds.


def handle(
    request: ListTransactionsRequest, context: CoordinatorContext
) -> Iterator[ListTransactionsResponse]:
    """The transactional ids of the node that asks, in parts."""
    transactions = list(context.coordinator.transactions)
    unknown = [state for state in request.state_filters if state not in STATES]
    wanted = _Wanted(request, context)
    for first in range(0, max(1, len(transactions)), PART_IDS):
        yield ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                Listed(
                    transactional_id=txn.transactional_id,
                    producer_id=txn.producer_id,
                    transaction_state=txn.state,
                )
                for txn in transactions[first : first + PART_IDS]
                if wanted.has(txn)
            ],
        )


class _Wanted:
    """What a request asks for, of the node that asks."""

    def __init__(self, request: ListTransactionsRequest, context: CoordinatorContext) -> None:
        self._states = frozenset(request.state_filters)
        self._producers = frozenset(request.producer_id_filters)
        self._least_age_ms, self._context = request.duration_filter, context

    def has(self, txn: StoredTransaction) -> bool:
        """Whether a transactional id is to be listed."""
        context = self._context
        age_ms = context.now.wall_ms - txn.started_ms
        return (
            (not self._states or txn.state in self._states)
            and (not self._producers or txn.producer_id in self._producers)
            and (self._least_age_ms < 0 or age_ms >= self._least_age_ms)
            and coordinator_of(txn.transactional_id, context.nodes).id == context.node_id
        )
