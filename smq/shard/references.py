"""Checks handles before acknowledging them: the payload must exist, be whole and belong to the
topic.

    the header `smq-ref`  →  the value is a handle  →  its payload exists, is as long as its id
    says, and was uploaded less than `smq.reference.orphan.ms` ago

After that time only records that name a payload keep it (smq.sealer.payloads). A payload that a new
record may still name is never swept and one that may be swept is refused, so the two need no
coordination.

If payloads are files on this host, a kernel checks handles by the same `Rule`
(shm.kernels.log.handles). It leaves all others to this module.

Compressed batches are not checked (docs/adr/handles-are-sent-uncompressed.md).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from shm.kernels.base.words import BATCH_LENGTH_AT, BATCH_OVERHEAD_BYTES
from shm.kernels.log.handles import AHEAD_MAX_MS
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.references import NotAHandle, Reference, directory_of
from smq.model.topic_configs import own_or_default
from smq.shard.answers import RefusedRecord
from smq.wire.references import handles_of_batch

REASONS_MAX = 16  # Per batch: a client that sends more bad handles learns of the others later.
PATIENCE_MS = 1000
REFUSED_MAX = 1000  # Per second: some ten milliseconds of futile look-ups.
LATER_MAX = 10_000  # Payloads requested per batch; 1 MiB of handles names fewer.
TOO_MANY = f"its batch names more than {LATER_MAX} payloads: send fewer"


class Seen(NamedTuple):
    """The filer's description of an existing payload."""

    length: int
    modified_ms: int


class Payloads(Protocol):
    """The filer as the check needs it. Calls may take microseconds, no more."""

    def look(self, key: str) -> Seen | None:
        """A payload, or None: it does not exist.

        Raises Later. After Later, the answers for a whole batch arrive together, for up to
        LATER_MAX payloads.
        """
        ...

    def directory(self, prefix: str) -> bytes | None:
        """The directory where keys that begin with `prefix` are files that a kernel may look at."""
        ...


class Later(Exception):
    """The answer was requested, and will be known soon."""


class Patience:
    """Limits the bad handles of one client per second."""

    __slots__ = ("_count", "_since_ms")

    def __init__(self) -> None:
        self._since_ms = self._count = 0

    def ends(self, refused: int, now_ms: int) -> bool:
        """Count refused handles; returns whether the client's allowance is used up."""
        if not 0 <= now_ms - self._since_ms < PATIENCE_MS:
            self._since_ms, self._count = now_ms, 0
        self._count += refused
        return self._count > REFUSED_MAX


class Verdict(NamedTuple):
    """The verdict on a batch: NONE, or an error and the records that it concerns.

    `instead`: the batch to append in its place.
    """

    error: ErrorCode
    refused: Sequence[RefusedRecord]
    instead: np.ndarray | None = None


GOOD = Verdict(ErrorCode.NONE, [])


class Rule(NamedTuple):
    """The conditions of a good handle whose payload is a file in a directory."""

    directory: bytes
    orphan_ms: int


class Handles(Protocol):
    """Decides which handles are valid."""

    def check(self, number: int, data: np.ndarray, at: int, wall_ms: int) -> Verdict:
        """Whether the uncompressed batch at data[at] may be appended to partition `number`."""
        ...

    def rule_of(self, number: int) -> Rule | None:
        """The rule by which a kernel may check the partition's handles until the catalog
        changes."""
        ...


class NoFiler:
    """No place for payloads: this shard has no filer."""

    def check(self, _number: int, _data: np.ndarray, _at: int, _wall_ms: int) -> Verdict:
        """See Handles."""
        return Verdict(
            ErrorCode.INVALID_RECORD, [RefusedRecord(0, "there is no filer for payloads")]
        )

    def rule_of(self, _number: int) -> None:
        """See Handles."""


class References:
    """Checks the handles in batches. `topic_of` a partition's number is its topic, if it is led."""

    def __init__(
        self, payloads: Payloads, topic_of: Callable[[int], Topic | None], config: Config
    ) -> None:
        self._payloads, self._topic_of, self.config = payloads, topic_of, config

    def check(self, number: int, data: np.ndarray, at: int, wall_ms: int) -> Verdict:
        """See Handles."""
        length_at = at + BATCH_LENGTH_AT
        length = int.from_bytes(data[length_at : length_at + 4].tobytes())
        handles = handles_of_batch(data, at, at + BATCH_OVERHEAD_BYTES + length)
        if handles is None:
            reason = "its records are malformed, and it may hold a handle"
            return Verdict(ErrorCode.INVALID_RECORD, [RefusedRecord(0, reason)])
        topic = self._topic_of(number)
        refused: list[RefusedRecord] = []
        later: dict[Reference | NotAHandle, int] = {}
        for handle in handles:
            try:
                reason = self._problem(handle.reference, topic, wall_ms)
            except Later:  # Go on: request all payloads of the batch together.
                later.setdefault(handle.reference, handle.record)
                reason = TOO_MANY if len(later) > LATER_MAX else ""
            if reason:
                refused.append(RefusedRecord(handle.record, reason))
            if len(refused) == REASONS_MAX:
                break
        if refused:
            return Verdict(ErrorCode.INVALID_RECORD, refused)
        return _to_be_sent_again(min(later.values())) if later else GOOD

    def rule_of(self, number: int) -> Rule | None:
        """See Handles."""
        topic = self._topic_of(number)
        assert topic is not None, "a partition that is appended to belongs to a topic"
        directory = self._payloads.directory(directory_of(topic.namespace, topic.name))
        return None if directory is None else Rule(directory, self._orphan_ms(topic))

    def _orphan_ms(self, topic: Topic) -> int:
        return int(own_or_default("smq.reference.orphan.ms", topic.configs, self.config))

    def _problem(self, reference: Reference | NotAHandle, topic: Topic | None, wall_ms: int) -> str:
        """The error of a handle, as a sentence, or nothing. Raises Later."""
        if isinstance(reference, NotAHandle):
            return str(reference)
        assert topic is not None, "a partition that is appended to belongs to a topic"
        seen = self._payloads.look(reference.key(topic.name, topic.namespace))
        if seen is None:
            return f"topic {topic.name} has no payload {reference.id}: upload it first"
        if seen.length != reference.length:
            return f"payload {reference.id} has {seen.length} bytes: it is not complete"
        orphan_ms = self._orphan_ms(topic)
        if not -AHEAD_MAX_MS <= wall_ms - seen.modified_ms < orphan_ms:
            return (
                f"payload {reference.id} was not uploaded within smq.reference.orphan.ms, "
                f"{orphan_ms} ms: upload it again"
            )
        return ""


def _to_be_sent_again(record: int) -> Verdict:
    reason = "whether its payload is there is being looked up; send it again"
    return Verdict(ErrorCode.KAFKA_STORAGE_ERROR, [RefusedRecord(record, reason)])
