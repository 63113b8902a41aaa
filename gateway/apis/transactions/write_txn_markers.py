"""WriteTxnMarkers (key 27), versions 1-2 (KIP-98, KIP-664, KIP-1228).

Lets an administrator end a hanging transaction of a producer in some partitions. Our own
coordinator sends its markers otherwise (smq.wire.internal.transactions). It does not learn of this
request: as in Kafka, a transaction aborted here may still be committed elsewhere.

- Answered when each marker is durable. A partition where the producer has no open transaction gets
  no marker.
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER; INVALID_PRODUCER_EPOCH for an old producer
  epoch; TRANSACTION_COORDINATOR_FENCED for an old coordinator epoch.
- A coordinator epoch above our coordinator's own counts as that one: it must not fence it.
"""

from collections.abc import Iterable, Sequence

from gateway.apis.acts import listed
from gateway.context import ShardContext, Wait
from smq.model.catalog import InternalPartition
from smq.model.errors import ErrorCode
from smq.security.acls import Operation
from smq.security.audit import AdminAct
from smq.shard.markers import Ending, end_transaction
from smq.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from smq.wire.markers import Marker

DURABLE_WITHIN_MS = 30_000  # request.timeout.ms of Kafka's brokers.
MARKERS_MAX = 300  # Elements of a request: appending a marker takes some dozen microseconds.

_Place = tuple[int, str, int]  # (producer, topic name, partition index)


def handle(
    request: WriteTxnMarkersRequest, context: ShardContext
) -> WriteTxnMarkersResponse | Wait:
    """Append the markers; the answer waits until all are durable."""
    writing = _Writing(context)
    for marker in request.markers:
        writing.append(marker)
    answer = writing.attempt(is_last=False)
    if answer is not None:
        return answer
    return Wait(writing.find_codes, DURABLE_WITHIN_MS, writing.attempt)


class _Writing:
    """The markers of a request. `_endings` holds each place once; the latest marker's answer
    counts."""

    def __init__(self, context: ShardContext) -> None:
        self._shard, self._now = context.shard, context.now
        rights = self._rights = context.rights
        self._may = rights.cluster(Operation.CLUSTER_ACTION) or rights.asks_cluster(Operation.ALTER)
        self._endings: dict[_Place, Ending] = {}

    def append(self, marker: WritableTxnMarker) -> None:
        """End the producer's transaction in each partition, and tell the audit log."""
        told: dict[ErrorCode, dict[str, None]] = {}  # Partitions by the error.
        for topic in marker.topics:
            for index in topic.partition_indexes:
                place = marker.producer_id, topic.name, index
                ending = self._endings[place] = self._end(marker, topic.name, index)
                told.setdefault(ending.error, {})[f"{topic.name}-{index}"] = None
        for code, places in told.items():
            self._tell(marker, code, places)

    def _end(self, asked: WritableTxnMarker, name: str, index: int) -> Ending:
        if not self._may:
            return Ending(-1, None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        led = self._shard.find_named(name, index)
        if isinstance(led, ErrorCode):
            return Ending(-1, None, led)
        if asked.producer_id < 0 or asked.producer_epoch < 0:
            return Ending(-1, None, ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(led, InternalPartition):  # No producer has a transaction open there.
            return Ending(-1, None, ErrorCode.NONE)
        known = led.log.transactions.coordinator_epoch(led.number, asked.producer_id)
        epoch = min(asked.coordinator_epoch, max(0, known))
        producer = asked.producer_id, asked.producer_epoch
        marker = Marker(*producer, asked.transaction_result, epoch)
        version = asked.transaction_version
        return end_transaction(self._shard, led.number, marker, version, self._now)

    def _tell(self, marker: WritableTxnMarker, code: ErrorCode, places: Iterable[str]) -> None:
        """Tell in which partitions a marker has ended a transaction, or has not by an error."""
        rights, name = self._rights, str(marker.producer_id)
        detail = f"{'commit' if marker.transaction_result else 'abort'} in {listed(places)}"
        act = AdminAct("END_TRANSACTION", "PRODUCER_ID", name, code, detail)
        rights.audit.act(rights.peer, rights.api, act, self._now)

    def find_codes(self) -> Sequence[int]:
        """The partitions whose high watermarks the answer waits for."""
        those = (each.led for each in self._endings.values())
        return sorted({led.code for led in those if led is not None})

    def attempt(self, *, is_last: bool) -> WriteTxnMarkersResponse | None:
        """The answer, or None while a marker is not durable yet."""
        late = ErrorCode.REQUEST_TIMED_OUT if is_last else None
        outcomes = {place: each.outcome(self._shard) for place, each in self._endings.items()}
        known = {place: late if code is None else code for place, code in outcomes.items()}
        codes = {place: code for place, code in known.items() if code is not None}
        return self._answer(codes) if len(codes) == len(known) else None

    def _answer(self, codes: dict[_Place, ErrorCode]) -> WriteTxnMarkersResponse:
        rows: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
        for (producer_id, name, index), code in codes.items():
            result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
            rows.setdefault(producer_id, {}).setdefault(name, []).append(result)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
                for producer_id, topics in rows.items()
            ]
        )
