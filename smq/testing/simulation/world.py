"""One simulation: its participants, their turns, its clock, and its end.

until the last event     processes, threads and clients take turns at random
then all is healed       dead processes start, disks work, clients send nothing new
quiet                    every request gets an answer or a closed connection
once more                in some seeds all processes die again, or the power fails
read                     everything, from the start; the rules decide
"""

import heapq
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from shm.kernels.base.words import P_HIGH_WATERMARK
from smq.app.process.inheritance import COORDINATOR, SEALER, shard_name
from smq.model.catalog import Catalog, Topic
from smq.model.errors import ErrorCode
from smq.testing.simulation.clock import MS, SimulatedClock
from smq.testing.simulation.consumer import Administrator, Committer, Consumer, Reader
from smq.testing.simulation.disk import Killed
from smq.testing.simulation.events import KINDS, TOPICS, Event, name_of
from smq.testing.simulation.host import Host
from smq.testing.simulation.ledger import Broken, Incarnation, Ledger, said
from smq.testing.simulation.members import GroupMember
from smq.testing.simulation.network import Network
from smq.testing.simulation.processes import CoordinatorProcess, Process, ShardProcess, logs_of
from smq.testing.simulation.producer import Lane, Producer
from smq.testing.simulation.rules import RULES
from smq.testing.simulation.sdk.programs import (
    GROUP,
    Part,
    SdkConsumer,
    SdkProducer,
    SdkProgram,
)
from smq.testing.simulation.sealer import SealerProcess
from smq.testing.simulation.transactor import CommittedReader, Places, Transactor

if TYPE_CHECKING:
    from smq.testing.simulation.clients import Client

RESTART_MS_MAX = 30  # After a death.
PAUSES_SHARE, PAUSE_MS_MAX = 0.03, 5.0  # After a turn the process may lose the CPU.
QUIET_MS = 15_000  # Longer than any answer of a healthy broker may take.
HANGING_MS = 90_000  # Longer than smq.app.shard.hanging lets a transaction be open.
REPAIR_MS = 4000  # Logs are tended once a second.
HANG_MS = 5000
LATE_MS = 400  # The longest delivery of an answer over a slow connection.
ROUNDS_MAX = 1_000_000
HEALED_ROUNDS = 8  # Between two checks when nothing is disturbed any more: reading takes long.

Ends = Callable[[str], None]


class World:
    """Everything. `directory` has only a store, and is removed at the end."""

    def __init__(self, seed: int, events: list[Event], directory: Path) -> None:
        self.seed, self.events = seed, events
        self.clock = SimulatedClock()
        self.chance = Random(f"world {seed}")  # noqa: S311
        self.network = Network(self.clock, seed)
        logs = self.chance.choice((1, 1, 2, 2, 3))
        self.host = Host(directory, self.clock, self.network, self.chance, logs)
        self.processes: dict[str, Process] = {}
        self.ledger = Ledger()
        self.next_fuse = -1
        self.trail: list[str] = []
        self.tells_details = False
        self.asserts = True  # Check the processes' invariants.
        lanes = count(1)
        self.producers = [Producer(self, f"producer-{i}", lanes) for i in range(3)]
        self.consumers = [Consumer(self, f"consumer-{i}") for i in range(2)]
        self.committers = [Committer(self, f"group-{i}") for i in range(2)]
        self.administrator = Administrator(self, "administrator")
        self.reader = Reader(self, "reader")
        names = "committed-reader", "onlooker"
        self.committed_reader, self.onlooker = (CommittedReader(self, each) for each in names)
        self.unchecked: set[tuple[str, Incarnation, int]] = set()
        topics = [name_of(number) for number in range(TOPICS)]
        self.sdk_producer = SdkProducer(self, "sdk-producer", lanes)
        self.sdk_consumers = [
            SdkConsumer(self, "sdk-consumer", topics, None),
            SdkConsumer(self, "sdk-member-0", topics, GROUP),
            SdkConsumer(self, "sdk-member-1", topics, GROUP),
        ]
        self.transactors = [Transactor(self, f"transactor-{i}", lanes) for i in range(2)]
        self.members = [GroupMember(self, f"member-{i}") for i in range(4)]
        groups = [each.group for each in self.transactors]
        self.checkers = [*self.committers, *(Committer(self, name) for name in groups)]
        self._programs: list[SdkProgram] = [self.sdk_producer, *self.sdk_consumers]
        self.sdk_commits: dict[Part, tuple[int, int]] = {}  # Of its group: acked, requested.
        self._clients: list[Client | SdkProgram] = [self.administrator, self.reader]
        self._clients += [self.committed_reader, self.onlooker, *self.transactors, *self.members]
        self._clients += [*self.producers, *self.consumers, *self.checkers, *self._programs]
        self._later: list[tuple[int, int, Callable[[], object]]] = []
        self._tie_breaker = count()
        self._fates: dict[Process, Ends] = {}
        self._frozen: dict[str, int] = {}
        self._disturbed_ns = 0
        self._is_healed = False
        self.rounds = 0

    # --- one run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Run from the start to the rules. Raises any failure."""
        # A broker first started with more shards has more logs.
        self._start(min(self.host.log_count, self.chance.choice((1, 2, 3, 3))))
        for event in self.events:
            self._pass(event.at_ms - self.clock.elapsed_ms())
            self.say(str(event))
            KINDS[event.kind].happen(self, *event.numbers)
        self._pass(self.chance.choice((5, 50, 500)))
        self._heal()
        self._settle()
        for program in self._programs:
            program.finish()
        self._settle()
        ending = self.chance.choice(("as it is", "kill-all", "cut-power"))
        if ending != "as it is":
            self.say(f"at the end: {ending}")
            (self.go_down if ending == "kill-all" else self.lose_power)(0)
            self._pass(2 * RESTART_MS_MAX)
        self._pass(HANGING_MS, until=self._has_no_open_transaction)
        self._read()
        for rule in RULES:
            rule(self)

    def say(self, what: str) -> None:
        """Log an event for a failure's report."""
        self.trail.append(f"[{self.clock.elapsed_ms():9.3f}] {what}")

    def detail(self, what: Callable[[], str]) -> None:
        """Log a detail, if the report is wanted."""
        if self.tells_details:
            self.say(what())

    def say_notices(self) -> None:
        """Log the processes' notices to the operator."""
        for process in self.processes.values():
            for line in process.said:
                told = line.strip().replace(f"{self.host.directory}/", "")
                self.trail.append(f"{process.name} says: {told}")

    def _heal(self) -> None:
        self.say("all is healed")
        self._is_healed = True
        for faults in (*self.host.faults, self.host.store_faults):
            faults.failing.clear()
            faults.slow_ms = faults.slow_jobs_ms = 0.0
        self._frozen.clear()
        for each in (each for one in self.consumers for each in one.connections.values()):
            each.resume()
        self.next_fuse = -1
        for process in self.processes.values():
            process.fuse = None
        for member in self.members:
            member.vanish()
        for producer in self.producers:
            producer.stop_flooding()

    def _settle(self) -> None:
        """Wait until all open requests are answered, without sending new ones.

        A log that is read-only until a restart gets one.
        """
        self._pass(REPAIR_MS, until=self._is_settled)
        for name, process in list(self.processes.items()):
            if isinstance(process, ShardProcess) and process.has_failed_for_good():
                self.kill(name)
        left = self._batches_left() + 1
        while self._batches_left() < left:  # A small log makes producers slow, not stop.
            left = self._batches_left()
            self._pass(QUIET_MS, until=self._is_settled)
        waits = [each.oldest_wait(self.clock.now_ns) for each in self._clients]
        longest_ms, whose = max(waits)
        if longest_ms > HANG_MS:
            raise Broken(f"{whose} has not been answered for {longest_ms:.0f} ms")
        unsent = [lane for each in self.producers for lane in each.lanes.values() if lane.batches]
        if unsent:
            lane = unsent[0]
            name = f"{lane.incarnation.topic.name}-{lane.partition}"
            raise Broken(f"a producer's records for {name} are never taken")
        if busy := [each.name for each in self.transactors if each.is_busy]:
            raise Broken(f"a transaction of {busy[0]} does not end")

    def _is_settled(self) -> bool:
        is_waiting = any(each.is_waiting() for each in self._clients)
        is_waiting |= any(each.is_busy for each in self.transactors)
        return not is_waiting and not self._batches_left()

    def _batches_left(self) -> int:
        return sum(len(lane.batches) for each in self.producers for lane in each.lanes.values())

    def _has_no_open_transaction(self) -> bool:
        """Whether all are ended. A power loss may have taken markers of some: their shards ask the
        coordinator about these."""
        opened = (log.transactions.opened() for log in logs_of(self.processes.values()))
        return not any(True for each in opened for _ in each)

    def _read(self) -> None:
        standing = [each for each in self.ledger.all if not each.is_dying]
        for incarnation in standing:
            for partition in range(incarnation.topic.partition_count):
                self.reader.read(incarnation, partition)
        for transactions in Places(self).all:
            self.committed_reader.read(transactions)
        self._check_groups()
        readers, have = (self.reader, self.committed_reader), -1
        unread = (*(each.unread for each in readers), self.unchecked)
        while have < (have := sum(each.count for each in readers)):  # The network may be slow.
            self._pass(QUIET_MS, until=lambda: not any(unread))
        if self.committed_reader.unread:
            raise Broken("what is committed cannot be read")
        if self.reader.unread:
            incarnation, partition = min(self.reader.unread, key=lambda each: each[0].topic.name)
            raise Broken(f"{incarnation.topic.name}-{partition} cannot be read")
        if self.unchecked:
            raise Broken(
                f"what {min(each[0] for each in self.unchecked)} has committed is not told"
            )

    def _check_groups(self) -> None:
        for (group, incarnation, partition), kept in self.ledger.commits.items():
            if not incarnation.is_dying:
                [committer] = [each for each in self.checkers if each.name == group]
                self.unchecked.add((group, incarnation, partition))
                committer.check(incarnation, partition, kept)

    # --- turns -----------------------------------------------------------------------------------

    def after(self, ms: float, action: Callable[[], object]) -> None:
        """Run an action after this time."""
        due_ns = self.clock.now_ns + int(ms * MS)
        heapq.heappush(self._later, (due_ns, next(self._tie_breaker), action))

    def after_unless_healed(self, ms: float, action: Callable[[], object]) -> None:
        """Run an action after this time, unless all is healed by then."""
        self.after(ms, lambda: self._is_healed or action())

    def _pass(self, ms: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        end_ns = self.clock.now_ns + int(ms * MS)
        while self.clock.now_ns < end_ns and not until():
            self._round(end_ns)

    def _let_others(self, until_ns: int) -> None:
        """Give others a turn while a blocking call waits, until then at most."""
        self._round(max(until_ns, self.clock.now_ns + 1))

    def _round(self, end_ns: int) -> None:
        """Let some ready participants act; without any, advance the clock until one is ready."""
        now_ns, chance = self.clock.now_ns, self.chance
        self.rounds += 1
        if self.rounds > ROUNDS_MAX:
            raise Broken("some work never ends")
        while self._later and self._later[0][0] <= now_ns:
            heapq.heappop(self._later)[2]()
        has_moved = self._let_processes(now_ns)
        for client in self._clients:
            if client.is_ready(now_ns):
                has_moved = True
                if chance.random() < 0.9:
                    client.turn()
        if has_moved:
            self.clock.now_ns += chance.randint(1000, 50_000)
        else:
            self.clock.now_ns = min(end_ns, max(now_ns + 1000, self._next_due_ns()))

    def _let_processes(self, now_ns: int) -> bool:
        """Let all processes act in random order; returns whether any could."""
        names = list(self.processes)
        self.chance.shuffle(names)
        has_moved = False
        for name in names:
            process = self.processes.get(name)
            if process is not None and self._frozen.get(name, 0) <= now_ns:
                has_moved |= self._let(process, now_ns)
        return has_moved

    def _let(self, process: Process, now_ns: int) -> bool:
        """Let one process act; returns whether it could."""
        self._run(process, lambda: process.step_threads(now_ns))
        if self.processes.get(process.name) is not process or not process.is_ready(now_ns):
            return False
        if self.chance.random() < 0.85:
            self._run(process, process.turn)
            is_checked = self.asserts and not (self._is_healed and self.rounds % HEALED_ROUNDS)
            if is_checked and self.processes.get(process.name) is process:
                process.invariants()
            if self.chance.random() < PAUSES_SHARE:
                self._pause(process.name, self.chance.random() * PAUSE_MS_MAX)
        return True

    def _pause(self, name: str, ms: float) -> None:
        self._frozen[name] = max(self._frozen.get(name, 0), self.clock.now_ns + int(ms * MS))

    def _next_due_ns(self) -> int:
        dues = [self._later[0][0]] if self._later else []
        for name, process in self.processes.items():
            due_ns = process.next_due_ns()
            if due_ns is not None:
                dues.append(max(due_ns, self._frozen.get(name, 0)))
        dues += [due for each in self._clients if (due := each.next_due_ns()) is not None]
        return min(dues, default=1 << 62)

    def _run(self, process: Process, action: Callable[[], None]) -> None:
        """Run a process's code, which may kill it as planned."""
        try:
            action()
        except Killed:
            if self.processes.get(process.name) is process:
                self._fates.pop(process, self.kill)(process.name)

    # --- lives and deaths ------------------------------------------------------------------------

    def light(self, name: str, fuse: int, ends: Ends) -> None:
        """Make a process die after this many system calls; `ends` happens with it."""
        process = self.processes[name]
        if fuse == 0:
            ends(name)
        else:
            process.fuse, self._fates[process] = fuse, ends

    def freeze(self, name: str, ms: float) -> None:
        """Give a process no CPU time for a while."""
        self.processes[name].stands_still()
        self._pause(name, ms)
        self.disturb(ms)

    def disturb(self, ms: float) -> None:
        """For this long, clients may learn of anything late."""
        self._disturbed_ns = max(self._disturbed_ns, self.clock.now_ns + int(ms * MS))

    def kill(self, name: str) -> None:
        """Kill a process; its successor starts soon."""
        self.say(f"{name} is killed{self._amid()}")
        self._bury(name)
        self._restart_soon(name)

    def _bury(self, name: str) -> None:
        process = self.processes.pop(name)
        process.release()
        self._fates.pop(process, None)
        self._frozen.pop(name, None)

    def _amid(self) -> str:
        """What a death interrupts, in words."""
        at_work = {each for process in self.processes.values() for each in process.at_work()}
        return f" amid {', '.join(sorted(at_work))}" if at_work else ""

    def _restart_soon(self, name: str) -> None:
        boot = self.host.inheritance

        def start() -> None:
            if self.host.inheritance is boot and self.host.is_up:
                self._start_process(name)

        self.after(self.chance.random() * RESTART_MS_MAX, start)

    def go_down(self, shards: int) -> None:
        """All processes die at once and restart soon with `shards` shards (0: the same number)."""
        self._go_down()
        self.ledger.lose("memory")
        self._start_soon(shards)

    def lose_power(self, shards: int) -> None:
        """The power fails, and returns soon."""
        self._go_down()
        self.host.lose_power()
        self.ledger.lose_power()
        self._start_soon(shards)

    def _go_down(self) -> None:
        self.say(f"all processes are killed{self._amid()}")
        for name in list(self.processes):
            self._bury(name)
        self.host.go_down()

    def _start_soon(self, shards: int) -> None:
        wanted = min(shards, self.host.log_count) or self.host.config.shards
        boot = self.host.generation

        def start() -> None:
            if not self.host.is_up and self.host.generation == boot:
                self._start(wanted)

        self.after(self.chance.random() * RESTART_MS_MAX, start)

    def _start(self, shards: int) -> None:
        self.host.start(shards)
        names = [COORDINATOR, *(shard_name(n) for n in range(1, shards + 1))]
        for name in [*names, SEALER] if self.host.seals else names:
            self._start_process(name)

    def _start_process(self, name: str) -> None:
        host, fuse = self.host, None
        if self.next_fuse >= 0:
            fuse, self.next_fuse = self.next_fuse, -1
        try:
            if name == COORDINATOR:
                self.processes[name] = CoordinatorProcess(host)
            elif name == SEALER:
                self.processes[name] = SealerProcess(host, self._let_others)
            else:
                node_id = int(name.rpartition("-")[2])
                host.take_generation()
                host.set_node(node_id)
                self.processes[name] = ShardProcess(host, node_id, fuse)
                self.processes[name].fuse = None
        except Killed:
            self.say(f"{name} is killed while it starts")
            self._gave_up(name)
        except OSError as reason:
            if not any(faults.failing for faults in host.faults):
                raise
            self.say(f"{name} cannot start: {reason}")
            self._gave_up(name)
        else:
            self.say(f"{name} starts in generation {host.generation}")

    def _gave_up(self, name: str) -> None:
        if name not in {COORDINATOR, SEALER}:
            for number, disk in enumerate(self.host.disks):
                if shard_name(self.host.leader_of(number)) == name:
                    disk.drop_descriptors()
                    disk.faults.boot_is_unknown = True
        self._restart_soon(name)

    # --- what clients are told -------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """The topic as in the catalog now."""
        block = self.host.inheritance.catalog
        with suppress(ValueError):
            version, published = block.read() if self.host.is_up else (0, b"")
            return Catalog.decode(published).by_name.get(name) if version else None
        return None

    def compacts(self, name: str) -> bool:
        """Whether topics of a name are compacted: two names are, in some runs with sealing."""
        return self.host.compacts and name != name_of(0)

    def acked(self, lane: Lane, values: list[bytes], offset: int) -> None:
        """A producer got an ack: its records are visible, at least until the next failure."""
        incarnation, partition = lane.incarnation, lane.partition
        for i, value in enumerate(values):
            incarnation.claim(partition, offset + i, value, "what is acked")
            self.ledger.acked_ns[value] = self.clock.now_ns
        process = self.processes.get(shard_name(self.host.leader_of(lane.log)))
        if incarnation.is_dying or not isinstance(process, ShardProcess):
            return
        number = incarnation.topic.partition_numbers[partition]
        led = process.shard.by_number(number)
        if led is None or self.ledger.is_damaged:
            return
        shown = int(led.log.partitions.table[led.slot, P_HIGH_WATERMARK])
        if shown < offset + len(values) and incarnation.claims[partition]:
            raise Broken(
                f"{incarnation.topic.name}-{partition} ({incarnation.level}): offset "
                f"{offset + len(values) - 1} is acked, and what is visible ends at {shown}"
            )

    def fetched(self, seen: list[bytes], sent_ns: int, wait_ms: int, least: int) -> None:
        """A consumer got these records. They must not be late if they existed."""
        now_ns = self.clock.now_ns
        if not wait_ms or least > 1 or now_ns < sent_ns + wait_ms * MS:
            return
        for value in seen:
            there_ns = max(self.ledger.acked_ns.get(value, now_ns), sent_ns, self._disturbed_ns)
            late_ms = (now_ns - there_ns) / MS
            if late_ms > LATE_MS:
                raise Broken(
                    f"a fetch that waits for {wait_ms} ms is told of {said(value)} when its time "
                    f"is over, {late_ms:.0f} ms after the record was there"
                )

    def gap(self, lane: Lane, first: int, code: ErrorCode) -> None:
        """A producer got an error: its next batch does not follow what was acked."""
        incarnation = lane.incarnation
        if incarnation.is_dying or self.ledger.is_damaged or lane.losses != incarnation.losses:
            return
        raise Broken(
            f"{incarnation.topic.name}-{lane.partition} ({incarnation.level}): lane {lane.number} "
            f"sends {first} next and gets {code.name}, although nothing may be lost"
        )

    def close(self) -> None:
        """Free everything."""
        for program in self._programs:
            program.close()
        for process in self.processes.values():
            process.release()
        self.processes.clear()
        self.host.close()
