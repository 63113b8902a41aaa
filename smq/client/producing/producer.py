"""The SDK's producer: idempotent, batched, over shared memory or Kafka's wire.

    with client.producer() as producer:
        sent = producer.send("clicks", b"value", key=b"k")       a Future
        producer.send_batch("clicks", table)                     a BatchFuture
        producer.flush()

Threads may share a producer. In a forked child, or pickled into a spawned one, it becomes a new
producer, which has none of the records that the parent had not sent yet.
"""

import atexit
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from shm.kernels.record.records_encode import RECORD_HEAD_BYTES_MAX
from shm.system import at_fork
from smq.client.arguments import (
    bytes_of,
    duration,
    function,
    header_pairs,
    text,
    topic_name,
    whole_number,
)
from smq.client.clock import SYSTEM_CLOCK
from smq.client.errors import Closed
from smq.client.payload_formats import (
    ARROW_STREAM,
    CONTENT_TYPE,
    NPY,
    write_array,
    write_table,
)
from smq.client.producing.channel.links import Links
from smq.client.producing.delivery.futures import BatchFuture, BufferFull, Future
from smq.client.producing.delivery.parcel import NO_EXTRAS, Extras, Parcel
from smq.client.producing.encode.batch_input import ABSENT, Piece, pieces_of
from smq.client.producing.encode.columns import rows_of, values_of
from smq.client.producing.parts import Options
from smq.client.producing.sender import Sender
from smq.client.producing.transactions.coordinator import TransactionCoordinator
from smq.client.producing.transactions.transaction import Transaction
from smq.client.reach import Reach
from smq.client.reference import HANDLE_HEADERS, Source
from smq.model.references import CONTENT_TYPE_DEFAULT, Reference

if TYPE_CHECKING:
    import pyarrow as pa

Bytes: TypeAlias = bytes | bytearray | memoryview
HeadersIn: TypeAlias = Mapping[str, Bytes | None] | Iterable[tuple[str | bytes, Bytes | None]]

TIMESTAMP_MIN, TIMESTAMP_END = -(2**63) + 1, 2**63
PARTITION_END = 2**31
EXIT_FLUSH_S = 5.0  # How long a `with` block that failed, or a process that ends, may flush.

logger = logging.getLogger(__name__)


class Producer:
    """Opened by `Client.producer`. All of its methods may be called from any thread."""

    def __init__(self, reach: Reach, options: Options) -> None:
        self._reach = reach
        self._options = options
        self._is_closed = False
        self._starting = threading.Lock()
        self._sender: Sender | None = None
        self._payloads = reach.payloads()
        self._start()
        _producers.add(self)

    def _start(self) -> Sender:
        """The sender; a new one in a forked child."""
        with self._starting:
            if self._is_closed:
                raise Closed("the producer has been closed")
            if self._sender is None:
                self._sender = self._new_sender()
                _senders.add(self._sender)
            return self._sender

    def _new_sender(self) -> Sender:
        reach, options = self._reach, self._options
        name = options.transactional_id
        links = Links(reach, is_transactional=name is not None)
        coordinator = None
        with ExitStack() as unless_it_begins:
            unless_it_begins.callback(links.close)
            if name is not None:
                coordinator = TransactionCoordinator(reach, name, options.transaction_timeout_ms)
                unless_it_begins.callback(coordinator.close)
            sender = Sender(links, options, reach.clock, coordinator)
            unless_it_begins.pop_all()
        return sender

    def must_wait(self, topic: str, value: Bytes | None, key: Bytes | None) -> bool:
        """Whether `send` would have to ask for the topic's metadata, or to wait for room."""
        text("topic", topic)
        size_bytes = _size_of(bytes_of("value", value), bytes_of("key", key))
        sender = self._sender or self._start()
        with sender.lock:
            return sender.admission.must_wait(topic, size_bytes)

    def wait_for_room(self, topic: str, value: Bytes | None, key: Bytes | None) -> None:
        """Wait until `send` need not, unless other threads take the room. Raises NoSuchTopic,
        BufferFull, BrokerError."""
        text("topic", topic)
        size_bytes = _size_of(bytes_of("value", value), bytes_of("key", key))
        sender = self._sender or self._start()
        with sender.lock:
            sender.admission.await_room(topic, size_bytes)

    def _detach_after_fork(self) -> None:
        """In a forked child: drop the sender, whose thread is not here."""
        self._starting, self._sender = threading.Lock(), None
        if self._options.transactional_id is not None:
            self._is_closed = True  # A new one would fence the parent's.

    def transaction(self) -> Transaction:
        """A transaction, which `with` begins: what is sent within is committed at the end.

        It is aborted if the block raises. Only for a producer with a transactional id, which sends
        nothing outside of transactions. See `Transaction` for what the end of the block raises.
        """
        transacting = (self._sender or self._start()).transacting
        if transacting is None:
            raise ValueError("transaction: only a producer with a transactional_id has them")
        return Transaction(transacting)

    def send(  # noqa: PLR0913  (each is a field of the record)
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: HeadersIn | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        callback: Callable[[Future], object] | None = None,
    ) -> Future:
        """Send a record; returns its future. `callback` is called with the future once it is done.

        The partition is the one given, or Kafka's for the key. Records without a key go to one
        partition for a while, then to the next. The timestamp is now unless one is given.
        Raises NoSuchTopic, BufferFull (no room within `block_s`), TypeError, ValueError.
        """
        if callback is not None:
            function("callback", callback)
            fields = {"headers": headers, "timestamp_ms": timestamp_ms, "partition": partition}
            future = self.send(topic, value, key=key, **fields)  # type: ignore[arg-type]
            future.add_done_callback(callback)
            return future
        if (
            type(topic) is not str
            or type(value) is not bytes
            or (key is not None and type(key) is not bytes)
        ):
            text("topic", topic)  # Its characters are looked at when it is new.
            value, key = bytes_of("value", value), bytes_of("key", key)
        extras = (
            NO_EXTRAS
            if headers is None and timestamp_ms is None and partition is None
            else _extras(headers, timestamp_ms, partition)
        )
        sender = self._sender or self._start()
        with sender.lock:  # And no `acquire` before a `try`: an interrupt may come between them.
            parcel = sender.find_open(topic)
            if parcel is None:
                single = sender.send_single(topic, value, key, extras)
                if single is not None:
                    return Future(single, 0)
                parcel = sender.open_parcel(topic, _size_of(value, key))
            row = len(parcel.values)
            if extras is not NO_EXTRAS:
                sender.outbox.check_partition(topic, extras.partition)
                parcel.extras[row] = extras
            if key is not None:
                parcel.keys[row] = key
            parcel.values.append(value)  # Uninterruptible since its extras: no row is torn.
            key_bytes = 0 if key is None else len(key)  # As _size_of, but for the call, for speed.
            parcel.room -= RECORD_HEAD_BYTES_MAX + len(value or b"") + key_bytes
            if parcel.room < 0:
                sender.outbox.grow_or_send(parcel)
        return Future(parcel, row)

    def send_batch(self, topic: str, batch: Any) -> BatchFuture:  # noqa: ANN401  (see batch_input)
        """Send the rows of an Arrow table or record batch, or of a dict of arrays or lists.

        Columns: value, and optionally key, headers, timestamp (ms) and partition. Their types are
        listed in `smq.client.producing.encode.batch_input`. A null timestamp or partition counts as
        not given.
        Raises what `send` raises. When BufferFull is raised a part of a large batch may have been
        sent: the error's `sent` is the future of that part.
        """
        topic_name("topic", topic)
        parcels: list[Parcel] = []
        pieces = list(pieces_of(batch))  # Nothing of a batch with an invalid row is sent.
        self._check_partitions(topic, pieces)
        for piece in pieces:
            try:
                parcels.append(self._send_piece(topic, piece))
            except BufferFull as error:
                error.sent = BatchFuture(topic, parcels)
                raise
        return BatchFuture(topic, parcels)

    def _check_partitions(self, topic: str, pieces: Sequence[Piece]) -> None:
        named = [each.partitions for each in pieces if each.partitions is not None]
        highest = max((int(each.max(initial=ABSENT)) for each in named), default=ABSENT)
        if highest != ABSENT:
            (self._sender or self._start()).check_partition(topic, highest)

    def _send_piece(self, topic: str, piece: Piece) -> Parcel:
        sender = self._sender or self._start()
        partition_count, keyless = sender.placement(topic)
        parcel = sender.outbox.new_parcel(topic, 0)
        plain = values_of(piece.values, parcel.opened_ms) if piece.is_plain else None
        if plain is not None:
            parcel.fill_one(plain, keyless)
        else:
            _fill(parcel, piece, partition_count, keyless)
        sender.send_parcel(parcel)
        return parcel

    def send_arrow(self, topic: str, table: "pa.Table | pa.RecordBatch", **fields: Any) -> Future:  # noqa: ANN401
        """Send a table as one record, an Arrow stream; consumers read it with `batch.tables()`.

        `fields` are those of `send`.
        """
        return self._send_typed(topic, write_table(table), ARROW_STREAM, fields)

    def send_array(self, topic: str, array: np.ndarray, **fields: Any) -> Future:  # noqa: ANN401
        """Send a NumPy array as one record, a .npy file; consumers read it with `batch.arrays()`.

        Dtype, shape and C or Fortran order are kept. Arrays with other strides arrive in C order.
        `fields` are those of `send`.
        """
        return self._send_typed(topic, write_array(array), NPY, fields)

    def send_reference(
        self,
        topic: str,
        source: Source,
        *,
        content_type: str = CONTENT_TYPE_DEFAULT,
        move: bool = False,
        **fields: Any,  # noqa: ANN401
    ) -> Future:
        """Upload a payload (see Client.upload), then send a record that refers to it.

        The payload is complete when this returns. The record is in the topic when the future is
        done; if it fails the payload is deleted later. `fields` are those of `send` but the value.
        """
        topic_name("topic", topic)
        if fields.get("headers") is not None:
            fields["headers"] = header_pairs(fields["headers"])
        partition = _partition_of(**fields)
        # First: upload nothing for a record that cannot be sent.
        self._start().check_partition(topic, partition)
        reference = self._payloads.upload(topic, source, content_type=content_type, move=move)
        return self.send_handle(topic, reference, **fields)

    def send_handle(self, topic: str, reference: Reference, **fields: Any) -> Future:  # noqa: ANN401
        """Send a record that refers to a payload which was uploaded to the topic.

        A reference may be sent any number of times, until the upload is smq.reference.orphan.ms
        old. The future raises ReferenceRejected when there is no such payload, and so do those of
        records in the same batch: a batch is written whole or not at all. `fields` as above.
        """
        if not isinstance(reference, Reference):
            raise TypeError(
                f"reference is a {type(reference).__name__}; it must be what `upload` gave"
            )
        headers = fields.pop("headers", None)
        more = () if headers is None else header_pairs(headers)
        headers_with = more + HANDLE_HEADERS if more else HANDLE_HEADERS
        return self.send(topic, reference.handle(), headers=headers_with, **fields)

    def _send_typed(self, topic: str, value: Any, kind: bytes, fields: dict[str, Any]) -> Future:  # noqa: ANN401
        headers = fields.pop("headers", None)
        more = () if headers is None else header_pairs(headers)
        return self.send(topic, value, headers=[(CONTENT_TYPE, kind), *more], **fields)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records sent so far are delivered or have failed. Raises TimeoutError.

        Raises the first error that no future has reported: no failure goes unnoticed. In a callback
        it raises RuntimeError, unless there is nothing to wait for.
        """
        if timeout_s is not None:
            timeout_s = duration("timeout_s", timeout_s)
        if self._sender is not None:
            self._sender.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close, whatever flush raises. A second call does nothing.

        In a callback it does not wait: the producer takes no more records, and ends when all are
        done.
        """
        if timeout_s is not None:
            timeout_s = duration("timeout_s", timeout_s)
        with self._starting:
            if self._is_closed:
                return
            self._is_closed = True
        sender = self._sender
        if sender is not None and sender.is_own_thread():
            sender.close_when_done()
        elif sender is not None:
            try:
                if sender.transacting is not None:
                    sender.transacting.close()
                sender.flush(timeout_s)
            finally:
                sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with suppress(Exception):  # Raise the block's own error.
            self.close(EXIT_FLUSH_S)

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """The thread, which does not refer to the producer, sends the rest and ends."""
        sender = self.__dict__.get("_sender")
        if sender is not None and not self._is_closed:
            sender.close_when_done()
            warn("a producer was not closed", ResourceWarning, source=self)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process: a new producer."""
        if self._options.transactional_id is not None:
            raise TypeError("a producer with a transactional id has one process: a copy fences it")
        return Producer, (self._reach, self._options)


def _size_of(value: bytes | None, key: bytes | None) -> int:
    """About how many bytes a record takes of the buffer."""
    return RECORD_HEAD_BYTES_MAX + len(value or b"") + len(key or b"")


def _fill(parcel: Parcel, piece: Piece, partition_count: int, keyless: int) -> None:
    """Put rows that have more than a value into a parcel. Raises ValueError."""
    timestamps: np.ndarray | int = parcel.opened_ms
    if piece.timestamps is not None:
        absent = piece.timestamps == ABSENT
        timestamps = np.where(absent, parcel.opened_ms, piece.timestamps)
    if piece.partitions is None:
        wanted = np.full(len(piece), -1, np.int64)
    else:
        wanted = piece.partitions.copy()
        whole_number("partition", wanted.max(initial=0), 0, partition_count)
    rows = rows_of(piece.values, piece.keys, piece.headers, timestamps)
    parcel.fill(rows, wanted, partition_count, keyless)


def _partition_of(
    key: Any = None,  # noqa: ANN401
    headers: Any = None,  # noqa: ANN401
    timestamp_ms: Any = None,  # noqa: ANN401
    partition: Any = None,  # noqa: ANN401
    callback: Any = None,  # noqa: ANN401
) -> int | None:
    """The partition that a record names, if it may have these fields. Raises as `send`."""
    bytes_of("key", key)
    if callback is not None:
        function("callback", callback)
    return _extras(headers, timestamp_ms, partition).partition


def _extras(headers: Any, timestamp_ms: Any, partition: Any) -> Extras:  # noqa: ANN401
    """The fields that few records have. Raises TypeError, ValueError."""
    if timestamp_ms is not None:
        timestamp_ms = whole_number("timestamp_ms", timestamp_ms, TIMESTAMP_MIN, TIMESTAMP_END)
    if partition is not None:
        partition = whole_number("partition", partition, 0, PARTITION_END)
    if headers is not HANDLE_HEADERS:
        headers = header_pairs(() if headers is None else headers)
    return Extras(headers, timestamp_ms, partition)


_senders: "weakref.WeakSet[Sender]" = weakref.WeakSet()
_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _detach_all_after_fork() -> None:
    for sender in list(_senders):  # Also of producers that were dropped.
        sender.detach_after_fork()
    for producer in list(_producers):
        producer._detach_after_fork()  # noqa: SLF001  (of this file)


at_fork(after_in_child=_detach_all_after_fork)


def _flush_all_at_exit() -> None:
    """Flush all producers at the end of the process, when its threads end."""
    end_s = SYSTEM_CLOCK.monotonic_s() + EXIT_FLUSH_S
    open_ones = [each for each in list(_senders) if not each.is_closed]
    lost = sum(
        each.flush_at_exit(max(0.0, end_s - SYSTEM_CLOCK.monotonic_s())) for each in open_ones
    )
    if lost:
        logger.warning(
            "%d records could not be sent before the process ended: flush() or close() producers",
            lost,
        )


atexit.register(_flush_all_at_exit)
