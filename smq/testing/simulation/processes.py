"""The broker's real processes within one: each is a loop that the simulation steps.

Forks, sleeps and threads are stepped here; all other code is the real one. A process dies between
two system calls (`before_call`), or by an exception.
"""

import select
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

from shm.kernels.base.words import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    WORD_SYNCED,
)
from smq.app.coordinator.server import Around, CoordinatorServer
from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import monotonic_ms, wall_ms
from smq.app.process.inheritance import (
    COORDINATOR,
    SEALER,
    kafka_name,
    shard_name,
)
from smq.app.process.loop import Loop, Spin
from smq.app.process.notices import Notices
from smq.app.process.peers import Peers
from smq.app.shard.catalogs import Catalogs
from smq.app.shard.commands import ShardCommands
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.connections.entrance import Entrance
from smq.app.shard.door.session import Session
from smq.app.shard.entrances import Entrances
from smq.app.shard.main import CATALOG_WAIT_MS, housekeep
from smq.app.shard.requests.acks import Acks
from smq.app.shard.server import ShardServer
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.topics import Cluster
from smq.coordinator.transactions.states import DECIDED, TransactionState
from smq.log.files.past_cache import BLOCKS_MIN
from smq.log.files.segment_files import WalLimits
from smq.log.log import Log
from smq.log.recovery import open_log
from smq.model.now import Now
from smq.model.segments import KnownEnds
from smq.security.access import AccessView
from smq.security.listeners import UNIX
from smq.shard.produce import Marks
from smq.shard.shard import Shard
from smq.store.known_ends import known_ends
from smq.store.store import FILE_NAME
from smq.testing.simulation.clock import MS
from smq.testing.simulation.cost import Inflated, NewcomersSteps
from smq.testing.simulation.disk import Killed, SimulatedDisk
from smq.testing.simulation.host import PARTITIONS_PER_LOG_MAX, Host
from smq.testing.simulation.network import ListeningSocket, SimPoller
from smq.testing.simulation.people import INSIDE, OUTSIDE
from smq.testing.simulation.store import SimulatedStore
from smq.testing.simulation.threads import SteppedBackground, SteppedLane, SteppedSyncer
from smq.testing.simulation.turns import watched

if TYPE_CHECKING:
    from smq.testing.simulation.epochs import EpochSocket

Ends = Callable[[str], None]

KERNEL_TURNS_SHARE = 0.5
PAUSE_MS = 1000  # Of a start that tries again what it cannot read.
HEALS_SHARE = 0.05  # Of these pauses: a page of the disk can be read behind them.
SYNC_MS, JOB_MS = 0.4, 0.3  # The longest time of a sync, and of a background job.
CATALOG_BYTES_MAX = 1 << 15


class _NeverSpins(Spin):
    """Busy-waiting would not advance the simulated time."""

    def take_ns(self) -> int:
        """See Spin."""
        return 0


class SimulatedLoop(Loop):
    """A process's loop, with its ready events in random order."""

    def __init__(self, process: "SimProcess") -> None:
        self.poller = SimPoller(process.host.network)
        super().__init__(self.poller)
        self.spin = _NeverSpins()
        self._process = process

    def connect(self, path: Path) -> socket.socket:
        """See Loop."""
        self._process.before_call("connect")
        network = self._process.host.network
        sock = network.connect((str(path), 0), (self._process.name, 0))
        sock.owner = self._process
        return cast("socket.socket", sock)

    def unsent_bytes(self, fd: int) -> int:
        """See Loop."""
        return self._process.host.network.unsent_bytes(fd)

    def has_ended(self, fd: int) -> bool:
        """See Loop."""
        return self._process.host.network.has_ended(fd)


class SimProcess:
    """A process. `fuse` is the number of system calls before it dies; then `ends` happens."""

    ends: Ends

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name
        self.fuse: int | None = None
        self.chance = Random(host.chance.getrandbits(64))  # noqa: S311
        self.loop = SimulatedLoop(self)
        self.is_woken = self.is_touched = True
        self._arrival_ns: int | None = None  # When the next bytes arrive, if nothing is touched.
        self.is_alive = True
        self.held_ns = -1  # When it last stood still with something to send.
        self.said: list[str] = []

    def before_call(self, _method: str) -> None:
        """A system call, perhaps the last one."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed(self.name)

    def stands_still(self) -> None:
        """It gets no CPU time for a while: what it could not send yet waits."""
        if any(mask & select.EPOLLOUT for mask in self.loop.poller.watched.values()):
            self.held_ns = self.host.clock.now_ns

    def turn(self) -> None:
        """One turn of its loop."""
        self.is_woken, self.is_touched = False, True
        self.loop.run_once(0)

    def invariants(self) -> None:
        """Raise AssertionError if an invariant does not hold."""

    def at_work(self) -> list[str]:
        """Its unfinished work in words: what a death interrupts."""
        return []

    def is_ready(self, now_ns: int) -> bool:
        """Whether a turn would do anything."""
        due_ns = self.loop.next_due_ns()
        if self.is_woken or (due_ns is not None and due_ns <= now_ns):
            return True
        if self.is_touched or (self._arrival_ns is not None and self._arrival_ns <= now_ns):
            self.is_touched = self.loop.poller.is_ready()
            self._arrival_ns = self.loop.poller.next_due_ns()
        return self.is_touched

    def next_due_ns(self) -> int | None:
        """When it becomes ready by itself; 0: perhaps now, as it has not looked yet."""
        if self.is_touched or self.is_woken:
            return 0
        dues = (self.loop.next_due_ns(), self._arrival_ns)
        return min((due for due in dues if due is not None), default=None)

    def step_threads(self, now_ns: int) -> None:
        """Run the ready work of its threads."""

    def release(self) -> None:
        """Close what the operating system closes for a dead process."""
        self.is_alive = False
        for sock in self.host.network.sockets_of(self):
            sock.owner = None
            if self.chance.random() < 0.5:
                sock.reset()
            sock.close()

    def listener(self, name: str) -> socket.socket:
        """A listener of the host, whose connections now belong to this process."""
        listener: ListeningSocket = self.host.listeners[name]
        listener.owner = self
        return cast("socket.socket", listener)


class KernelAcks(Acks):
    """The acks of a shard whose turns a kernel sometimes takes: it writes the acks below level
    `disk`, and requests no sync (smq.app.shard.turns.quick_turns.may_run, shm.kernels.turn.turns).
    """

    def __init__(self, shard: Shard, chance: Random) -> None:
        super().__init__(shard)
        self._chance = chance
        self._has_disk = False  # In this turn.

    def queue(
        self,
        client: Connection | Session,
        answers: bytes,
        marks: Marks,
        slot: Slot | None = None,
        began_ns: int = 0,
    ) -> None:
        """See Acks."""
        self._has_disk |= any(mark.level == DURABILITY_DISK for mark in marks)
        super().queue(client, answers, marks, slot, began_ns)

    def write(self) -> None:
        """See Acks."""
        super().write()
        self._has_disk = False

    def _write(self, log: Log) -> None:
        if self._is_kernels(log) and log.write():
            self._shard.publish(log, DURABILITY_OS)
        else:  # What fails is left to the loop.
            super()._write(log)

    def _is_kernels(self, log: Log) -> bool:
        if self._has_disk or log.failed is not None or len(self._shard.logs) > 1:
            return False
        if DURABILITY_MEMORY in self._shard.levels:
            return False
        return self._chance.random() < KERNEL_TURNS_SHARE


class ShardProcess(SimProcess):
    """Like smq.app.shard.main, but without threads, descriptors and the local door."""

    def __init__(self, host: Host, node_id: int, fuse: int | None = None) -> None:
        super().__init__(host, shard_name(node_id))
        self.fuse, self._paused_ms = fuse, 0
        self._inflated, self._newcomers = Inflated(), NewcomersSteps()
        self._hashing = SteppedLane(self.loop, lambda: self._when(JOB_MS))
        self._threads: list[SteppedSyncer | SteppedBackground | SteppedLane] = [self._hashing]
        self.inheritance = inheritance = host.inheritance
        self._numbers = [n for n in inheritance.logs if host.leader_of(n) == node_id]
        for number in self._numbers:
            host.disks[number].before_call = self.before_call
        logs = {number: self._open(number) for number in self._numbers}
        for number, log in logs.items():  # It may die before it can write what it knows of losses.
            host.disks[number].faults.boot_is_unknown |= not log.losses.is_saved
        secret = self.chance.randbytes(16)
        access = AccessView(inheritance.access, host.config)
        self.shard = shard = Shard(
            node_id, host.config, logs, inheritance.known_nodes, secret, access
        )
        paths = inheritance.socket_path(COORDINATOR), inheritance.socket_path(SEALER)
        peers = Peers(self.loop, node_id, *paths)
        self._catalogs = Catalogs(
            inheritance.catalog, shard, self._known_ends, self._sync_store, monotonic_ms
        )
        words = inheritance.catalog.words
        acks = KernelAcks(shard, self.chance)
        with watched():
            self.server = ShardServer(
                *(self.loop, shard, peers, self._catalogs.take, words, acks),
                submit=self._hashing.submit,
            )
        self.server.polls.looks_a_turn = 1  # A poll.
        self.server.clients.shared.now_ns = self._newcomers.now_ns
        self._access = access
        commands = ShardCommands(self.loop, shard, peers)
        commands.listen(self.listener(self.name))
        notices = Notices(logs.values(), self.said.append)
        housekeep(self.loop, self.server, commands, [], notices)
        self._serve(node_id)

    def turn(self) -> None:
        """See SimProcess."""
        with self._inflated.turn(), self._newcomers.turn():
            super().turn()

    def at_work(self) -> list[str]:
        """See SimProcess."""
        shard = self.shard
        states = {
            "hurried sealing": shard.hurried_logs,
            "slowed": shard.throttle.is_on,
            "full": shard.full_logs,
        }
        return [words for words, is_so in states.items() if is_so]

    def _open(self, number: int) -> Log:
        host, disk = self.host, self.host.disks[number]
        memory = host.inheritance.logs[number]
        syncer = SteppedSyncer(memory, disk, lambda: self._when(SYNC_MS + disk.faults.slow_ms))
        background = SteppedBackground(lambda: self._when(JOB_MS + disk.faults.slow_jobs_ms))
        self._threads += [syncer, background]
        log, recovered = open_log(
            memory,
            disk.directory,
            disk,
            syncer,
            background,
            limits=WalLimits(
                host.config.wal_segment_bytes,
                host.config.wal_bytes_max,
                host.config.wal_keep_bytes,
                host.config.page_cache_bytes,
                BLOCKS_MIN,
            ),
            generation=host.generation,
            boot_id=f"{host.boot:016d}".encode(),
            producers_key=self.chance.randbytes(16),
            now_ms=monotonic_ms(),
            pause=partial(self._pause, disk),
        )
        self.said += recovered.damaged
        return log

    def _pause(self, disk: SimulatedDisk) -> int:
        """Between two tries of a start. The clock stands still: no other process has a turn."""
        if self.chance.random() < HEALS_SHARE:
            disk.heal()
        self._paused_ms += PAUSE_MS
        return monotonic_ms() + self._paused_ms

    def _when(self, ms_max: float) -> int:
        return self.host.clock.now_ns + int(self.chance.random() * ms_max * MS)

    def _known_ends(self) -> list[KnownEnds]:
        return known_ends(self.host.directory / FILE_NAME, self._numbers)

    def _sync_store(self) -> None:
        raise AssertionError("a log has lost what is sealed: no fault of ours takes that")

    def _serve(self, node_id: int) -> None:
        self._catalogs.take()
        if not self._catalogs.are_known:
            self.loop.call_later(CATALOG_WAIT_MS, partial(self._serve, node_id))
        elif self.host.is_secured:
            self._let_in(node_id)
        else:
            self.server.clients.listen(self.listener(f"tcp-{node_id}"))

    def _let_in(self, node_id: int) -> None:
        """Serve all listeners of a secured broker."""
        secret, clients = self.inheritance.decoy_secret, self.server.clients
        entrances = Entrances(
            self.host.config, self._access, secret, self.said.append, self._make_nonce
        )
        clients.listen(self.listener(f"tcp-{node_id}"), entrances.of[INSIDE])
        clients.listen(self.listener(f"sasl-{node_id}"), entrances.of[OUTSIDE])
        clients.listen(self.listener(kafka_name(node_id)), Entrance(UNIX, users={}))

    def _make_nonce(self) -> str:
        return f"{self.chance.getrandbits(128):x}"

    def invariants(self) -> None:
        """See SimProcess."""
        self.shard.invariants()
        self.server.invariants()
        self._access.invariants()
        for log in self.shard.logs.values():
            is_done = log.syncs.awaited <= log.words[WORD_SYNCED] or log.failed is not None
            assert is_done or log.syncs.syncer.busy(), "a sync is wanted, and none goes on"

    def is_ready(self, now_ns: int) -> bool:
        """See SimProcess."""
        is_behind = self.inheritance.catalog.has_moved(self.shard.catalog_version)
        return is_behind or super().is_ready(now_ns)

    def next_due_ns(self) -> int | None:
        """See SimProcess."""
        dues = [super().next_due_ns(), *(self._due_ns(each) for each in self._threads)]
        return min((due for due in dues if due is not None), default=None)

    @staticmethod
    def _due_ns(thread: SteppedSyncer | SteppedBackground | SteppedLane) -> int | None:
        if isinstance(thread, SteppedBackground):
            return thread.next_due_ns()
        return thread.due_ns

    def step_threads(self, now_ns: int) -> None:
        """See SimProcess."""
        for thread in self._threads:
            due_ns = self._due_ns(thread)
            if due_ns is None or due_ns > now_ns:
                continue
            if isinstance(thread, SteppedBackground):
                thread.step(now_ns)
            else:
                thread.step()
            self.is_woken = True

    def has_failed_for_good(self) -> bool:
        """Whether a log needs a restart."""
        return any(log.failed is not None for log in self.shard.logs.values())

    def close(self) -> None:
        """A clean stop: disconnect all clients, write the logs and their checkpoints."""
        for log in self.shard.logs.values():
            log.close()

    def release(self) -> None:
        """See SimProcess."""
        super().release()
        for number in self._numbers:
            self.host.disks[number].drop_descriptors()


def logs_of(processes: Iterable[SimProcess]) -> list[Log]:
    """The logs of the shards among some processes."""
    shards = [each.shard for each in processes if isinstance(each, ShardProcess)]
    return [log for shard in shards for log in shard.logs.values()]


class CoordinatorProcess(SimProcess):
    """Like smq.app.coordinator.main, but with a seeded random generator."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, COORDINATOR)
        inheritance, config = host.inheritance, host.config
        self.store = SimulatedStore.open(host.directory / FILE_NAME)
        self.store.faults, self.store.before_call = host.store_faults, self.before_call
        self.store.keep_log()
        host.store_image = None
        cluster = Cluster(
            inheritance.cluster_id,
            host.log_count,
            PARTITIONS_PER_LOG_MAX,
            CATALOG_BYTES_MAX,
            lambda node: next(
                each.generation for each in inheritance.nodes.nodes() if each.id == node
            ),
        )
        epochs = cast("EpochSocket", inheritance.epoch_sockets[COORDINATOR])
        epochs.owner = self

        def build() -> Coordinator:
            self.coordinator = Coordinator(self.store, config, cluster, self.chance, _now())
            return self.coordinator

        self._server = CoordinatorServer(
            self.loop,
            build,
            Around(
                inheritance.known_nodes,
                inheritance.catalog.publish,
                inheritance.access.publish,
                _now,
                lambda node: inheritance.socket_path(shard_name(node)),
                inheritance.timings.coordinator_errors(),
                epochs=inheritance.epoch_sockets[COORDINATOR],
            ),
        )
        self.loop.run_once(0)
        Acceptor(self.loop, self.listener(COORDINATOR), self._server.accepted)

    def at_work(self) -> list[str]:
        """See SimProcess."""
        ended = self.coordinator.transactions
        is_answered = any(each.state == TransactionState.PREPARE_COMMIT for each in ended)
        return ["an answered commit without its markers"] if is_answered else []

    def invariants(self) -> None:
        """See SimProcess."""
        self._server.invariants()
        self.coordinator.groups.invariants()
        self.coordinator.transactions.invariants()
        self.coordinator.moves.invariants()
        self.coordinator.access.invariants()

    def release(self) -> None:
        """See SimProcess. What was not committed is forgotten."""
        super().release()
        self.host.store_image = self.store.image(self.host.store_chance)
        self.store.close()


def are_ended(processes: Mapping[str, SimProcess]) -> bool:
    """Whether all transactions are ended, and their markers can be read. A power loss may have
    taken those of some: their shards ask the coordinator about these."""
    process = processes.get(COORDINATOR)
    opened = (log.transactions.opened() for log in logs_of(processes.values()))
    if not isinstance(process, CoordinatorProcess) or any(True for each in opened for _ in each):
        return False
    return not any(each.state in DECIDED for each in process.coordinator.transactions)


def _now() -> Now:
    return Now(monotonic_ms(), wall_ms())


assert sys.flags.optimize == 0, "invariants are assertions"
