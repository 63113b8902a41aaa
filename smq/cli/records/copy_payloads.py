"""Copies the payloads that copied records refer to, before producing the records.

A payload keeps its id, so its handle is valid in the destination too. One that exists there is
written again: only young payloads may be named (docs/adr/only-young-payloads-may-be-referenced.md).
One that the destination's broker is about to delete is not, as that would delete it under its
record. Handles are never compressed (docs/adr/handles-are-sent-uncompressed.md), so other batches
cost one search for the header's name.
"""

from contextlib import suppress

from shm.arrow import read_only
from shm.kernels.record.references import may_refer
from smq.cli.records.copying import Side
from smq.client.facts import BrokerFacts, broker_facts
from smq.client.reference import Payloads, PayloadSpace, StoredPayload
from smq.filer.store import CONDEMNED, CREATE, OUTDATED_MS, OVERWRITE, Mode
from smq.filer.upload import UploadTarget
from smq.model.errors import AlreadyExists
from smq.model.references import Reference
from smq.wire.codec import Buffer
from smq.wire.references import handles_of_batch

PIECE_BYTES = 4 * 1024 * 1024
KNOWN_MAX = 100_000  # Payloads seen by this run, which it does not check again; some 10 MB.


class PayloadCopy:
    """The payloads of one copy. Looks up the brokers' filers at the first handle."""

    def __init__(self, source: Side, destination: Side) -> None:
        self._sides = source, destination
        self._spaces: tuple[PayloadSpace, PayloadSpace] | None = None
        self._is_possible = True
        self._known: set[str] = set()
        self.count = self.bytes = 0

    def bring(self, batch: Buffer) -> None:
        """Copy the payloads that a batch refers to. Raises BrokerError, StoreError."""
        data = read_only(batch)
        if not (self._is_possible and may_refer(data, 0, len(data))):
            return
        handles = handles_of_batch(data, 0, len(data)) or []
        references = [each.reference for each in handles if isinstance(each.reference, Reference)]
        spaces = self._found() if references else None
        if spaces is not None:
            for each in references:
                self._bring(*spaces, each)

    def _found(self) -> tuple[PayloadSpace, PayloadSpace] | None:
        """Both payload spaces; None if a broker has no filer, and thus no handles."""
        if self._spaces is None:
            facts = [broker_facts(side.cluster) for side in self._sides]
            self._is_possible = all("filer.root" in each.settings for each in facts)
            if self._is_possible:
                source, destination = map(_space_of, self._sides, facts)
                self._spaces = source, destination
        return self._spaces

    def _bring(self, source: PayloadSpace, destination: PayloadSpace, reference: Reference) -> None:
        if reference.id in self._known:
            return
        payload, key = StoredPayload(source, reference).view(), destination.keys + reference.id
        try:
            _write(destination.store, key, payload, CREATE)
        except AlreadyExists:  # An earlier run has copied it.
            _refuse_condemned(destination.store, key)
            _write(destination.store, key, payload, OVERWRITE)
        else:
            self.count += 1
            self.bytes += len(payload)
        if len(self._known) < KNOWN_MAX:
            self._known.add(reference.id)


def _write(store: UploadTarget, key: str, payload: memoryview, mode: Mode) -> None:
    with store.writing(key, mode) as sink:
        for at in range(0, len(payload), PIECE_BYTES):
            sink.write(payload[at : at + PIECE_BYTES])


def _refuse_condemned(store: UploadTarget, key: str) -> None:
    """Raise AlreadyExists if a payload is condemned. A front and a shard look by themselves."""
    path = store.local_path(key)
    with suppress(FileNotFoundError):
        if path is not None and path.stat().st_mtime_ns == OUTDATED_MS:
            raise AlreadyExists(key, CONDEMNED)


def _space_of(side: Side, facts: BrokerFacts) -> PayloadSpace:
    return PayloadSpace.of(Payloads(lambda: facts).store, side.topic)
