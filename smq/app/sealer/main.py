"""The main of the sealer: polls the shards, and assigns work to its workers.

    shards  ──partitions──▶  what is due  ──▶  worker "seal": seals, retention, sweeps
    shards  ──cold, offset_for_time──────────▶  workers "cold": read back

A read never waits for a seal: reads have their own workers (smq.app.sealer.workers). This process
holds no state worth keeping: after a death, the next one polls the shards and continues.
"""

import os
import select
import shutil
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

from shm.peer import is_ours
from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import monotonic_ms, now
from smq.app.process.collector import collect_only_young
from smq.app.process.inheritance import SEALER, Inheritance, shard_name
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.app.process.notices import Lately
from smq.app.process.peers import Neighbour
from smq.app.sealer.chores import Chores
from smq.app.sealer.claims import Claim
from smq.app.sealer.hands import Hands, Terms
from smq.app.sealer.known import Known
from smq.app.sealer.pass_memory import SharedPassMemory
from smq.app.sealer.shard_load import ShardLoad
from smq.app.sealer.surroundings import Surroundings
from smq.app.sealer.tables import TableKey, Tables
from smq.app.sealer.workers import Hire, Readers, Sealers, sealers_of
from smq.filer.location import Location
from smq.filer.mark import mark
from smq.model.errors import PeerError
from smq.model.printable import say_error
from smq.sealer.lake.catalog import CatalogSettings
from smq.sealer.lake.state import move_old_states, states
from smq.sealer.plan import due
from smq.sealer.watched import Watched
from smq.wire.internal.form import (
    Failed,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.messages import (
    FOR_SEALER,
    Partitions,
    PartitionState,
    Pressure,
    Probe,
    Seal,
)
from smq.wire.internal.reads import Inline, MakeInline

POLL_MS = 500  # The delay until a partition may be sealed; small beside any sensible smq.seal.ms.
PROBE_WAIT_MS = 5000  # The start waits no longer for a filer that does not answer.
PROBE_RETRY_MS = 5000
HURRY_MS = 5000  # After the last log was short of space: what was sealed frees it a little later.


class Sealer:
    """Polls the shards, assigns work that is due, and serves cold reads."""

    def __init__(
        self, loop: Loop, inheritance: Inheritance, hire: Hire = Hands, sealers: int = 1
    ) -> None:
        config = inheritance.config
        cache = inheritance.data_dir / "cache"
        empty(cache)
        move_old_states(inheritance.data_dir)
        self._memory = SharedPassMemory()
        at = Surroundings(
            inheritance.data_dir,
            Location.of(config),
            inheritance.runtime_dir,
            cache,
            CatalogSettings.of(config),
            self._memory,
            drops_pages=config.page_cache_bytes >= 0,
        )
        self._loop, self._inheritance = loop, inheritance
        terms = Terms(Claim.SPARE, late_ms=config.seal_late_ms)
        self.sealing = Sealers("seal", sealers, lambda name: hire(loop, name, at, terms))
        self.reading = Readers(loop, "cold", at, hire=hire)
        self._known = Known()
        self._shards = {
            node: Neighbour(loop, inheritance.socket_path(shard_name(node)))
            for node in config.node_ids
        }
        self._in_hand: set[int] = set()
        self._states: dict[int, PartitionState] = {}
        self._watched = {node: Watched(self._states) for node in self._shards}
        self._asked: set[int] = set()
        self._pressure = False
        self._short_ms: int | None = None  # When a log was short of space last.
        self._loads = {node: ShardLoad() for node in self._shards}
        self._links: set[Link] = set()
        self._told = Lately()
        self.publishing = hire(loop, "tables", at, terms)
        self._tables = Tables(
            self.publishing,
            self._known,
            lambda: (
                TableKey(each.namespace, each.topic, each.format) for each in states(at.data_dir)
            ),
            self._say_problem,
            config.log_retention_check_interval_ms,
        )
        self._chores = Chores(
            self.sealing,
            config,
            self._known,
            self._states,
            self._say_problem,
            self._tables.changed,
        )
        self._is_marked = False
        # A directory needs no probe: file systems guarantee that only one of two links succeeds.
        self._is_fit = not Location.of(config).is_s3
        self._has_reported = False

    def listen(self, listener: socket.socket) -> None:
        """Serve the shards."""

        def accepted(sock: socket.socket, _address: str) -> None:
            self._links.add(Link(self._loop, sock, self._question, self._links.discard))

        Acceptor(self._loop, listener, accepted, is_ours)

    def begin(self) -> None:
        """Start once the filer was probed, or the probe takes too long."""
        self._mark_filer()  # Clients may upload as soon as the broker is ready.
        if self._is_fit:
            self._report_ready()
        else:
            self._loop.call_later(PROBE_WAIT_MS, self._report_ready)
            self._probe()
        self.round()

    def _probe(self) -> None:
        """Probe the filer, and retry until it answers; nothing is sealed before.

        Raises SystemExit if the filer must not be used.
        """

        def answered(answer: str | Failed | None) -> None:
            self._say_problem(answer)
            if isinstance(answer, Failed):
                self._loop.call_later(PROBE_RETRY_MS, self._probe)
            elif answer is not None:
                raise SystemExit(f"smq: filer.root: {answer}")
            else:
                self._is_fit = True
            self._report_ready()

        self.reading.do(Probe(), answered)  # It must not wait for idle cores.

    def _report_ready(self) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._inheritance.report_ready()

    def round(self) -> None:
        """Poll every shard without a pending question; reschedules itself."""
        self._known.look(self._inheritance)
        self._mark_filer()
        for node in self._shards:
            if node not in self._asked:
                self._ask(node)
        if self._known.config is not None:
            self._chores.config = self._known.config
            self._chores.look(now())
            if not self._chores.compacts:
                self._memory.clear()
            if self._is_fit:
                self._tables.check_ms = self._known.config.log_retention_check_interval_ms
                self._tables.look(monotonic_ms())
        is_short = self._short_ms is not None and monotonic_ms() - self._short_ms < HURRY_MS
        is_busy = any(load.is_high(monotonic_ms()) for load in self._loads.values())
        self.sealing.hurry(is_short=is_short)
        self.sealing.give_way(is_busy=is_busy)
        self.publishing.give_way(is_busy=is_busy)
        self.sealing.look()
        self.publishing.look()
        self.reading.look()
        self._loop.call_later(POLL_MS, self.round)

    def _ask(self, node: int) -> None:
        """Ask a shard for its partitions' changes."""
        self._asked.add(node)
        question = partial(encode_question, question=self._watched[node].question())
        self._shards[node].ask(question, partial(self._shard_answered, node))

    def _mark_filer(self) -> None:
        """Mark the filer's directory for clients on this host, once it can be written."""
        location = Location.of(self._inheritance.config)
        if not (self._is_marked or location.is_s3):
            with suppress(OSError):  # The next use of the filer reports the problem.
                mark(Path(location.root), self._inheritance.cluster_id)
                self._is_marked = True

    def stop(self) -> None:
        """End the workers, and close all links."""
        self.sealing.stop()
        self.publishing.stop()
        self.reading.stop()
        for link in self._links:
            link.close()
        for shard in self._shards.values():
            shard.close()

    def _question(self, link: Link, frame: InternalFrame) -> None:
        try:
            question = decode_question(frame.body, FOR_SEALER)
        except PeerError as reason:
            link.send(encode_answer(frame.id, Failed(str(reason))))
            return
        self._known.look(self._inheritance)  # A shard may know a new topic before we do.
        match question:
            case Pressure():
                self.press()
                link.send(encode_answer(frame.id, answer=True))
            case Inline():
                self._read_inline(link, frame.id, question)
            case _:
                self.reading.do(question, partial(self._answer_to, link, frame.id))

    def press(self) -> None:
        """A log is short of space: all that waits is sealed."""
        self._pressure = True

    def _read_inline(self, link: Link, frame_id: int, asked: Inline) -> None:
        place = self._known.place(asked.number)
        if place is None:
            link.send(encode_answer(frame_id, Failed("the topic is gone")))
            return
        job = MakeInline(place.node, place.partition, asked)
        self.reading.do(job, partial(self._answer_to, link, frame_id))

    def _answer_to(self, link: Link, frame_id: int, answer: object) -> None:
        self._say_problem(answer)
        link.send(encode_answer(frame_id, answer))

    def _shard_answered(self, node: int, body: bytes) -> None:
        self._asked.discard(node)
        if not body:
            return
        facts = decode_answer(Partitions, body)
        if isinstance(facts, Failed):
            return
        self._loads[node].see(facts.cpu_ms, monotonic_ms())
        watched = self._watched[node]
        if not watched.take(facts):
            self._ask(node)
            return
        state = watched.state(facts)
        is_short = self._pressure or state.wants_space
        if is_short:
            self._short_ms = monotonic_ms()
            self.sealing.hurry(is_short=True)  # What is given now begins like that.
        chosen = due(
            state,
            self._known.settings,
            monotonic_ms(),
            before=watched.take_before(),
            pressure=is_short,
        )
        for each in chosen:
            if self._is_fit and each.number not in self._in_hand:
                self._seal(node, each, is_short=is_short)
        self._pressure = False

    def _seal(self, node: int, state: PartitionState, *, is_short: bool) -> None:
        number = state.number
        place = self._known.place(number)
        assert place is not None, "what is due has settings"
        partition, settings, _ = place
        self._in_hand.add(number)

        def answered(answer: int | Failed) -> None:
            self._in_hand.discard(number)
            self._tables.changed(number)
            self._say_problem(answer)

        undecided_end = state.high_watermark if is_short else 0
        how = settings.seal_bytes, settings.schema, state.start
        ends = undecided_end, state.undecided_end
        job = Seal(node, partition, state.sealed_end, state.stable_end, *how, *ends)
        self.sealing.do(job, answered)

    def _say_problem(self, answer: object) -> None:
        if isinstance(answer, Failed) and self._told.is_new(answer.what, monotonic_ms()):
            say_error(f"sealer: {answer.error}")


def empty(directory: Path) -> None:
    """Delete a directory's content: files cached by an earlier sealer are no longer tracked.

    What lies behind a link is not ours: the link itself goes.
    """
    if directory.is_symlink():
        directory.unlink()
    for entry in directory.iterdir() if directory.exists() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def sealer_main(inheritance: Inheritance) -> None:
    """Seal, do chores and serve cold reads until asked to stop."""
    loop = Loop()
    sealer = Sealer(loop, inheritance, sealers=sealers_of(len(os.sched_getaffinity(0))))
    sealer.listen(inheritance.unix_listeners[SEALER])
    loop.register(inheritance.stop.fd, select.EPOLLIN, lambda _: loop.stop())
    sealer.begin()
    collect_only_young()
    loop.run()
    sealer.stop()
