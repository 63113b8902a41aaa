"""A child of the sealer that does its work: the only process of the broker that holds pyarrow.

It is forked when there is something to do, takes one job after the other (JSON both ways, see
`JOBS`), and leaves when nothing comes for a while: memory that Arrow has touched goes back to the
machine that way and no other. It may be killed at any moment; so may its parent, which takes it
along.
"""

import json
import os
import socket
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smq.app.process.asker import Asker
from smq.app.process.clock import monotonic_ms, wall_ms
from smq.app.process.inheritance import COORDINATOR, shard_name, socket_path
from smq.app.sealer.ports import ShardOverSocket, StoredManifest
from smq.filer.location import Location
from smq.filer.s3 import S3Store, Unfit
from smq.filer.store import Store
from smq.model.errors import PeerError, StoreError, Unavailable
from smq.model.references import PREFIX, directory_of
from smq.model.topic_configs import TopicSettings
from smq.sealer.housekeeping import Housekeeping, drop_unsealed
from smq.sealer.pages import Pages
from smq.sealer.payloads import Owner, PayloadSweep, look_up
from smq.sealer.ports import SEGMENTS_PREFIX, Place
from smq.store.store import FILE_NAME
from smq.wire.internal import InternalReader, encode_command

if TYPE_CHECKING:
    from smq.sealer.cold import Cache, ColdReader, Found

IDLE_S = 15.0
RECEIVE_BYTES = 1 << 16
CACHE_BYTES_MAX = 1 << 30
INLINE_BATCHES_BYTES = 1 << 20  # Of handles looked at for one answer: some thousands.

Answer = dict[str, Any]


class Surroundings(NamedTuple):
    """Where everything is."""

    data_dir: Path
    filer: Location
    runtime_dir: Path
    cache_dir: Path


class Worker:
    """Does jobs. What a job needs is opened, and imported, when the first of its kind comes."""

    def __init__(self, at: Surroundings, asker: Callable[[Path], Asker] = Asker) -> None:
        self._at, self._asker = at, asker
        self._shards: dict[int, ShardOverSocket] = {}
        self.jobs: dict[str, Callable[..., Any]] = {
            "probe": self.probe,
            "seal": self.seal,
            "drop_unsealed": self.drop_unsealed,
            "retain": self.retain,
            "sweep": self.sweep,
            "forget_unfinished": self.forget_unfinished,
            "sweep_payloads": self.sweep_payloads,
            "payloads": self.payloads,
            "cold": self.cold,
            "inline": self.inline,
            "offset_for_time": self.offset_for_time,
        }

    def do(self, job: dict[str, Any]) -> Answer:
        """The answer to a job: {"ok": …}, or {"error": sentence}.

        A filer that is away is the same "problem", whatever was wanted of it.
        """
        try:
            return {"ok": self.jobs[job.pop("do")](**job)}
        except Unavailable as reason:
            return {"error": str(reason), "problem": reason.message}
        except (StoreError, PeerError) as reason:
            return {"error": str(reason)}

    def probe(self) -> str | None:
        """Why the filer must not be used, if it must not."""
        if isinstance(self.store, S3Store):
            try:
                self.store.probe()
            except Unfit as reason:
                return str(reason)
        return None

    def seal(
        self, node: int, place: list[Any], sealed_end: int, end: int, segment_bytes: int
    ) -> int:
        """Seal a partition; up to which offset it is sealed now."""
        from smq.sealer.seal import Gone, Sealing  # noqa: PLC0415  (It imports pyarrow.)

        job = Sealing(self.store, self._shard(node), self.manifest, wall_ms)
        try:
            return job.seal(Place(*place), sealed_end, end, segment_bytes)
        except Gone:
            return end

    def drop_unsealed(
        self, node: int, place: list[Any], settings: list[Any], unsealed_bytes: int
    ) -> int:
        """Drop what could not be sealed and is no longer kept; where the log starts then."""
        shard, number = self._shard(node), Place(*place).number
        return drop_unsealed(
            shard,
            self.manifest,
            number,
            TopicSettings(*settings),
            wall_ms(),
            unsealed_bytes=unsealed_bytes,
        )

    def retain(
        self,
        node: int,
        place: list[Any],
        settings: list[Any],
        shard_start: int,
        unsealed_bytes: int,
    ) -> Answer:
        """Delete some of what a partition no longer keeps; which files went."""
        job = Housekeeping(self.store, self._shard(node), self.manifest)
        retention = job.retain(
            Place(*place),
            TopicSettings(*settings),
            wall_ms(),
            shard_start=shard_start,
            unsealed_bytes=unsealed_bytes,
        )
        paths = [segment.path for segment in retention.deleted]
        return {"deleted": paths, "has_more": retention.has_more}

    def sweep(self, before_ms: int, after: str) -> Answer:
        """Of a page of files delete those that no line of the manifest names."""
        page = self._segment_files.take(after)
        job = Housekeeping(self.store, self._shard(1), self.manifest)
        return {"swept": job.sweep(page.files, before_ms), "after": page.following}

    def forget_unfinished(self, before_ms: int) -> int:
        """Forget unfinished writes that nobody has touched since; how many there were."""
        return self.store.sweep(before_ms)

    def sweep_payloads(self, owners: list[list[Any]], before_ms: int, after: str) -> Answer:
        """Of a page of payloads delete those that no record names any more and none can name."""
        page = self._payload_files.take(after)
        job = PayloadSweep(self.store, self._shard, self.manifest)
        known = [Owner(*owner) for owner in owners]
        swept = job.sweep(page.files, known, wall_ms(), before_ms)
        return {"swept": swept, "after": page.following}

    def payloads(self, keys: list[str]) -> dict[str, tuple[int, int] | None]:
        """Of payloads the length and when they were uploaded, or None: there is none."""
        return look_up(self.store, keys)

    def cold(self, number: int, offset: int, bytes_max: int) -> Answer:
        """Batches from sealed segments, as a range of a file."""
        return _answer(self._cold(number, offset, bytes_max))

    def inline(self, node: int, place: list[Any], offset: int, bytes_max: int) -> Answer:
        """Batches with payloads in place of their handles, as a range of a file."""
        from smq.sealer.inline import deliver, payload_in  # noqa: PLC0415  (For a rare topic.)

        at, key = Place(*place), (f"inline {place} {bytes_max}", offset)
        if (kept := self._cache.get(key)) is None:
            batches = self._batches(node, at.number, offset, min(bytes_max, INLINE_BATCHES_BYTES))
            payload_of = payload_in(self.store, directory_of(at.namespace, at.topic))
            delivered = deliver(batches, offset, bytes_max, payload_of)
            kept = self._cache.put(key, delivered.pieces, delivered.places(offset))
        return _answer(kept.find(offset, bytes_max))

    def _batches(self, node: int, number: int, offset: int, bytes_max: int) -> bytes:
        """A partition's batches from `offset` on, from the log or from segments."""
        try:
            return self._shard(node).batches(number, offset, bytes_max, synced=False)
        except StoreError:  # They have left the log.
            found = self._cold(number, offset, bytes_max)
            with found.path.open("rb") as file:
                return os.pread(file.fileno(), found.length, found.at)

    def _cold(self, number: int, offset: int, bytes_max: int) -> "Found":
        found = self._reader.read(number, offset, bytes_max)
        if found is None:
            raise StoreError(f"partition {number}", f"no segment has offset {offset}")
        return found

    def offset_for_time(self, number: int, timestamp: int) -> Answer | None:
        """The first sealed record of a time or later."""
        found = self._reader.offset_for_time(number, timestamp)
        return None if found is None else {"offset": found[0], "timestamp": found[1]}

    @cached_property
    def store(self) -> Store:
        return self._at.filer.open()

    @cached_property
    def manifest(self) -> StoredManifest:
        coordinator = self._asker(socket_path(self._at.runtime_dir, COORDINATOR))
        return StoredManifest(self._at.data_dir / FILE_NAME, coordinator)

    @cached_property
    def _segment_files(self) -> Pages:
        return Pages(self.store, SEGMENTS_PREFIX)

    @cached_property
    def _payload_files(self) -> Pages:
        return Pages(self.store, PREFIX)

    @cached_property
    def _reader(self) -> "ColdReader":
        from smq.sealer.cold import ColdReader  # noqa: PLC0415  (It imports pyarrow.)

        return ColdReader(self.store, self.manifest, self._cache)

    @cached_property
    def _cache(self) -> "Cache":
        from smq.sealer.cold import Cache  # noqa: PLC0415  (It imports pyarrow.)

        return Cache(self._at.cache_dir, CACHE_BYTES_MAX, monotonic_ms)

    def _shard(self, node: int) -> ShardOverSocket:
        if node not in self._shards:
            asker = self._asker(socket_path(self._at.runtime_dir, shard_name(node)))
            self._shards[node] = ShardOverSocket(asker)
        return self._shards[node]


def problem_of(answer: Answer) -> str:
    """What is wrong when a job is answered with an error, in words that do not vary."""
    return str(answer.get("problem", answer["error"]))


def _answer(found: "Found | None") -> Answer:
    assert found is not None, "what was asked for is in what was made for it"
    return {
        "path": str(found.path),
        "at": found.at,
        "length": found.length,
        "next_offset": found.next_offset,
    }


def work(sock: socket.socket, at: Surroundings, idle_s: float = IDLE_S) -> None:
    """Do the jobs that come, until none comes for a while or nobody is there to send one."""
    worker, reader = Worker(at), InternalReader()
    sock.settimeout(idle_s)
    while True:
        try:
            received = sock.recv(RECEIVE_BYTES)
        except (TimeoutError, ConnectionError):
            return
        if not received:
            return
        for frame in reader.receive(received):
            answer = encode_command(frame.id, worker.do(json.loads(frame.body)))
            try:
                sock.sendall(answer)
            except (TimeoutError, ConnectionError):
                return
