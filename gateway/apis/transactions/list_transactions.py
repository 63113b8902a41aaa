"""ListTransactions (key 66), versions 0-2 (KIP-664).

- Each transactional id is listed by the node that FindCoordinator names for it, and by no other:
  admin clients ask every node and join the answers.
- Unknown states in the filter are returned as such; filters of state and producer both apply.
- From 1: only transactions at least this old (KIP-994). One that never began counts as of 1970, as
  in Kafka.
- From 2: only names that match a regular expression (KIP-1152); otherwise
  INVALID_REGULAR_EXPRESSION (smq.model.patterns). An empty one matches all.
"""

from collections.abc import Iterator

from gateway.apis.find_coordinator import coordinator_of
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.transactions.states import TransactionState
from smq.model.errors import BrokerError
from smq.model.patterns import Pattern
from smq.security.acls import Operation
from smq.store.rows import StoredTransaction
from smq.wire.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState as Listed,
)

STATES = {*TransactionState, "PrepareEpochFence"}  # The last one is Kafka's alone.
PART_IDS = 500  # Each listed one takes some microseconds.
# Letters of a part's names times the pattern's size: some milliseconds. Listing them takes more by
# itself than a few steps of a pattern.
MATCHED_MAX, LISTED_AS = 1_000_000, 4


def handle(
    request: ListTransactionsRequest, context: CoordinatorContext
) -> Iterator[ListTransactionsResponse]:
    """The transactional ids that belong to the asking node, in parts."""
    unknown = [state for state in request.state_filters if state not in STATES]
    try:
        wanted = _Wanted(request, context)
    except BrokerError as refusal:
        yield ListTransactionsResponse(error_code=refusal.code)
        return
    for part in _parts(list(context.coordinator.transactions), wanted.pattern):
        yield ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                Listed(
                    transactional_id=txn.transactional_id,
                    producer_id=txn.producer_id,
                    transaction_state=txn.state,
                )
                for txn in part
                if wanted.has(txn)
            ],
        )


def _parts(
    transactions: list[StoredTransaction], pattern: Pattern | None
) -> Iterator[list[StoredTransaction]]:
    """The transactional ids, in portions that take a few milliseconds each; one part at least."""
    part: list[StoredTransaction] = []
    matched = 0
    for txn in transactions:
        part.append(txn)
        matched += len(txn.transactional_id) * (LISTED_AS + (pattern.size if pattern else 0))
        if len(part) == PART_IDS or matched >= MATCHED_MAX:
            yield part
            part, matched = [], 0
    yield part


class _Wanted:
    """The filters of a request, and the node that relayed it. Raises BrokerError."""

    def __init__(self, request: ListTransactionsRequest, context: CoordinatorContext) -> None:
        self._states = frozenset(request.state_filters)
        self._producers = frozenset(request.producer_id_filters)
        self._least_age_ms, self._context = request.duration_filter, context
        text = request.transactional_id_pattern
        self.pattern = Pattern(text) if text else None

    def has(self, txn: StoredTransaction) -> bool:
        """Whether to list a transactional id."""
        name, context = txn.transactional_id, self._context
        has_begun, now = txn.started_ms >= 0, context.now
        age_ms = now.monotonic_ms - txn.started_ms if has_begun else now.wall_ms
        return (
            (not self._states or txn.state in self._states)
            and (not self._producers or txn.producer_id in self._producers)
            and (self._least_age_ms < 0 or age_ms >= self._least_age_ms)
            and coordinator_of(name, context.nodes).id == context.node_id
            and (self.pattern is None or self.pattern.matches(name))
            and context.rights.transactional_id(Operation.DESCRIBE, name)
        )
