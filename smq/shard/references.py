"""Checks handles before acknowledging them: the payload must exist, be whole and belong to the
topic.

    the header `smq-ref`  →  the value is a handle  →  its payload exists, is as long as its id
    says, and was uploaded less than `smq.reference.orphan.ms` ago

After that time only records that name a payload keep it. The sweep (smq.sealer.payloads) condemns a
payload before it deletes it: its upload then counts as of 1970. A check that takes long may have
looked before; its batch is to be sent again.

If payloads are files on this host, a kernel checks handles by the same `HandleRule`
(shm.kernels.log.handles). It leaves all others to this module.

Compressed batches are not checked (docs/adr/handles-are-sent-uncompressed.md).
"""

from collections.abc import Callable, Collection
from functools import partial
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np

from shm.kernels.base.words import BATCH_LENGTH_AT, BATCH_OVERHEAD_BYTES
from shm.kernels.log.handles import AHEAD_MAX_MS
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.model.references import NotAHandle, Reference, directory_of
from smq.model.topic_settings import settings_of
from smq.shard.answers import RefusedRecord
from smq.shard.checks import (
    CHECK_BYTES,
    GOOD,
    NOTHING,
    ROOM_BYTES,
    Check,
    TurnRoom,
    Verdict,
)
from smq.wire.references import Handle, handle_rows, handles_of_rows

REASONS_MAX = 16  # Per batch: a client that sends more bad handles learns of the others later.
PATIENCE_MS = 1000
REFUSED_MAX = 1000  # Per second: some ten milliseconds of futile look-ups.
CHECK_MS_MAX = 60_000  # A payload may be condemned since the look at it: see SETTLED_MS.
LATER_MAX = 10_000  # Payloads requested per batch; 1 MiB of handles names fewer.
HANDLE_ROOM_BYTES = 4096  # Of a TurnRoom: looking for a payload takes ten microseconds.
TOO_MANY = f"its batch names more than {LATER_MAX} payloads: send fewer"


class PayloadFacts(NamedTuple):
    """The filer's description of an existing payload."""

    length: int
    modified_ms: int


class PayloadLookup(Protocol):
    """The filer as the check needs it. Calls may take microseconds, no more."""

    def look(self, key: str) -> PayloadFacts | None:
        """A payload, or None: it does not exist.

        Raises NotYetKnown. After that, the answers for a whole batch arrive together, for up to
        LATER_MAX payloads.
        """
        ...

    def directory(self, prefix: str) -> bytes | None:
        """The directory where keys that begin with `prefix` are files that a kernel may look at."""
        ...


class NotYetKnown(Exception):
    """The answer was requested, and will be known soon."""


class BadHandleLimit:
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


class HandleRule(NamedTuple):
    """The conditions of a good handle whose payload is a file in a directory."""

    directory: bytes
    orphan_ms: int


class Handles(Protocol):
    """Decides which handles are valid."""

    def check(self, number: int, data: np.ndarray, at: int, now: Now) -> Check:
        """Whether the batch at data[at] may be appended to partition `number`.

        Until the check ends, `data` must stay as it is.
        """
        ...

    def rule_of(self, number: int) -> HandleRule | None:
        """The rule by which a kernel may check the partition's handles until the catalog
        changes."""
        ...


class NoFiler:
    """No place for payloads: this shard has no filer."""

    def check(self, _number: int, _data: np.ndarray, _at: int, _now: Now) -> Check:
        """See Handles."""
        yield from ()
        return Verdict(
            ErrorCode.INVALID_RECORD, [RefusedRecord(0, "there is no filer for payloads")]
        )

    def rule_of(self, _number: int) -> None:
        """See Handles."""


class References:
    """Checks the handles in batches. `topic_of` a partition's number is its topic, if it is led."""

    def __init__(
        self,
        payloads: PayloadLookup,
        topic_of: Callable[[int], Topic | None],
        config: Config,
        room: TurnRoom | None = None,
    ) -> None:
        self._payloads, self._topic_of, self.config = payloads, topic_of, config
        self.room = room or TurnRoom()

    def check(self, number: int, data: np.ndarray, at: int, now: Now) -> Check:
        """See Handles."""
        length_at = at + BATCH_LENGTH_AT
        length = int.from_bytes(data[length_at : length_at + 4].tobytes())
        end = at + BATCH_OVERHEAD_BYTES + length
        if end - at > ROOM_BYTES // 2:
            rows = yield partial(handle_rows, data, at, end)
        else:
            while not self.room.take(end - at + CHECK_BYTES):
                now = yield NOTHING
            rows = handle_rows(data, at, end)
        if rows is None:
            reason = "its records are malformed, and it may hold a handle"
            return Verdict(ErrorCode.INVALID_RECORD, [RefusedRecord(0, reason)])
        return (yield from self._look(self._topic_of(number), data, rows, now))

    def _look(self, topic: Topic | None, data: np.ndarray, rows: np.ndarray, now: Now) -> Check:
        """Look for the payloads of these handles; the verdict on their batch."""
        refused: list[RefusedRecord] = []
        later: dict[Reference | NotAHandle, int] = {}
        oldest: tuple[int, Handle] | None = None
        begun_ms = now.monotonic_ms
        for handle in handles_of_rows(data, rows):
            while not self.room.take(HANDLE_ROOM_BYTES):
                now = yield NOTHING
            try:
                reason, modified_ms = self._problem(handle.reference, topic, now.wall_ms)
                oldest = min(oldest or (modified_ms, handle), (modified_ms, handle), key=_AGE)
            except NotYetKnown:  # Go on: request all payloads of the batch together.
                later.setdefault(handle.reference, handle.record)
                reason = TOO_MANY if len(later) > LATER_MAX else ""
            if reason:
                refused.append(RefusedRecord(handle.record, reason))
            if len(refused) == REASONS_MAX:
                break
        if not refused and oldest is not None:  # It may have become too old since its look-up.
            reason = self._age_problem(oldest[1].reference, oldest[0], topic, now.wall_ms)
            refused += [RefusedRecord(oldest[1].record, reason)] if reason else []
            if now.monotonic_ms - begun_ms >= CHECK_MS_MAX:
                later.setdefault(oldest[1].reference, oldest[1].record)
        return _verdict_on(refused, later.values())

    def rule_of(self, number: int) -> HandleRule | None:
        """See Handles."""
        topic = self._topic_of(number)
        assert topic is not None, "a partition that is appended to belongs to a topic"
        directory = self._payloads.directory(directory_of(topic.namespace, topic.name))
        return None if directory is None else HandleRule(directory, self._orphan_ms(topic))

    def _orphan_ms(self, topic: Topic) -> int:
        return settings_of(topic, self.config).reference_orphan_ms

    def _problem(
        self, reference: Reference | NotAHandle, topic: Topic | None, wall_ms: int
    ) -> tuple[str, int]:
        """The error of a handle, as a sentence, or nothing; when its payload was uploaded.

        Raises NotYetKnown.
        """
        if isinstance(reference, NotAHandle):
            return str(reference), wall_ms
        assert topic is not None, "a partition that is appended to belongs to a topic"
        seen = self._payloads.look(reference.key(topic.name, topic.namespace))
        if seen is None:
            return f"topic {topic.name} has no payload {reference.id}: upload it first", wall_ms
        if seen.length != reference.length:
            return f"payload {reference.id} has {seen.length} bytes: it is not complete", wall_ms
        problem = self._age_problem(reference, seen.modified_ms, topic, wall_ms)
        return problem, seen.modified_ms

    def _age_problem(
        self,
        reference: Reference | NotAHandle,
        modified_ms: int,
        topic: Topic | None,
        wall_ms: int,
    ) -> str:
        """Why a payload may not be named by a new record any more, or nothing."""
        assert topic is not None, "a partition that is appended to belongs to a topic"
        assert isinstance(reference, Reference), "it has a payload"
        orphan_ms = self._orphan_ms(topic)
        if -AHEAD_MAX_MS <= wall_ms - modified_ms < orphan_ms:
            return ""
        return (
            f"payload {reference.id} was not uploaded within smq.reference.orphan.ms, "
            f"{orphan_ms} ms: upload it again"
        )


_AGE = itemgetter(0)


def _verdict_on(refused: list[RefusedRecord], later: Collection[int]) -> Verdict:
    """The verdict on a batch: these are refused, and of others it will be known later."""
    if refused:
        return Verdict(ErrorCode.INVALID_RECORD, refused)
    return _to_be_sent_again(min(later)) if later else GOOD


def _to_be_sent_again(record: int) -> Verdict:
    reason = "whether its payload is there is being looked up; send it again"
    return Verdict(ErrorCode.KAFKA_STORAGE_ERROR, [RefusedRecord(record, reason)])
