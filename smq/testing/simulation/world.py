"""One simulation: its participants, and the phases of a run.

until the last event     processes, threads and clients take turns at random
then all is healed       dead processes start, disks work, clients send nothing new
quiet                    every request gets an answer or a closed connection
once more                in some seeds all processes die again, or the power fails
read                     everything, from the start; the rules decide
"""

from itertools import count
from pathlib import Path

from shm.kernels.base.words import WORD_SPACE_END, WORD_TAIL
from smq.testing.simulation.consumer import Administrator, Committer, FinalReader, SimConsumer
from smq.testing.simulation.environment import LOST_MS, TOPICS, Environment, name_of
from smq.testing.simulation.guardian import Guardian
from smq.testing.simulation.guests import GuestReader, GuestWriter
from smq.testing.simulation.intruder import Intruder
from smq.testing.simulation.ledger import Broken
from smq.testing.simulation.lives import RESTART_MS_MAX, Lives
from smq.testing.simulation.members import SimMember
from smq.testing.simulation.people import ALL_GUESTS, GUARDED
from smq.testing.simulation.processes import ShardProcess, are_ended
from smq.testing.simulation.producer import ProducerLane, SimProducer
from smq.testing.simulation.scheduler import Participant, Scheduler
from smq.testing.simulation.sdk.programs import GROUP, SdkProgram, SimSdkConsumer, SimSdkProducer
from smq.testing.simulation.strangers import STRANGERS, Stranger
from smq.testing.simulation.transactor import CommittedReader, TransactionTopics, Transactor

QUIET_MS = 15_000  # Longer than any answer of a healthy broker may take.
DAMAGED_MS = 300_000  # Sealing, for which a full log waits, waits for what cannot be read.
HANGING_MS = 90_000  # Longer than smq.app.shard.waiting.hanging lets a transaction be open.
REPAIR_MS = 4000  # Logs are tended once a second.
HANG_MS = 5000


class World(Environment):
    """Everything. Its directory is removed at the end."""

    def __init__(self, seed: int, directory: Path, *, secures: bool = False) -> None:
        super().__init__(seed, directory, secures=secures)
        lanes = count(1)
        self.producers = [SimProducer(self, f"producer-{i}", lanes) for i in range(3)]
        self.consumers = [SimConsumer(self, f"consumer-{i}") for i in range(2)]
        self.committers = [Committer(self, f"group-{i}") for i in range(2)]
        self.administrator = Administrator(self, "administrator")
        self.reader = FinalReader(self, "reader")
        names = "committed-reader", "onlooker"
        self.committed_reader, self.onlooker = (CommittedReader(self, each) for each in names)
        topics = [name_of(number) for number in range(TOPICS)]
        self.sdk_producer = SimSdkProducer(self, "sdk-producer", lanes)
        self.sdk_consumers = [
            SimSdkConsumer(self, "sdk-consumer", topics, None),
            SimSdkConsumer(self, "sdk-member-0", topics, GROUP),
            SimSdkConsumer(self, "sdk-member-1", topics, GROUP),
        ]
        self.transactors = [Transactor(self, f"transactor-{i}", lanes) for i in range(2)]
        self.members = [SimMember(self, f"member-{i}") for i in range(4)]
        groups = [each.group for each in self.transactors]
        self.writers: list[GuestWriter] = []
        self.readers: list[GuestReader] = []
        self.guardian = Guardian(self, "guardian")
        self.strangers = [Stranger(self, number) for number in range(STRANGERS if secures else 0)]
        for number, guest in enumerate(ALL_GUESTS if secures else ()):
            self.writers.append(GuestWriter(self, f"writer-{number}", guest, lanes))
            self.readers.append(GuestReader(self, f"reader-{number}", guest))
        self.intruder = Intruder(self, "intruder", lanes)
        self.checkers = [*self.committers, *(Committer(self, name) for name in groups)]
        self._programs: list[SdkProgram] = [self.sdk_producer, *self.sdk_consumers]
        self._clients: list[Participant] = [self.administrator, self.reader]
        self._clients += [self.committed_reader, self.onlooker, *self.transactors, *self.members]
        self._clients += [*self.producers, *self.consumers, *self.checkers, *self._programs]
        if secures:
            self._clients += [self.guardian, self.intruder, *self.writers, *self.readers]
        self._clients += self.strangers
        self.scheduler = Scheduler(self, self._clients)
        self.lives = Lives(self, self.scheduler)

    def begin(self) -> None:
        """Start the broker. One first started with more shards has more logs."""
        self.lives.start(min(self.host.log_count, self.chance.choice((1, 2, 3, 3))))

    def wait_until(self, at_ms: int) -> None:
        """Let time pass until then."""
        self.scheduler.let_pass(at_ms - self.clock.elapsed_ms())

    def end(self) -> None:
        """From the last event to what was read. Raises any failure."""
        self.scheduler.let_pass(self.chance.choice((5, 50, 500)))
        self._heal()
        self._settle()
        for program in self._programs:
            program.finish()
        self._settle()
        ending = self.chance.choice(("as it is", "kill-all", "cut-power"))
        if ending != "as it is":
            self.say(f"at the end: {ending}")
            (self.lives.go_down if ending == "kill-all" else self.lives.lose_power)(0)
            self.scheduler.let_pass(2 * RESTART_MS_MAX)
        self.scheduler.let_pass(HANGING_MS, until=lambda: are_ended(self.processes))
        if self.secures:
            self._look_at_rights()
        self._read()

    def _heal(self) -> None:
        self.say("all is healed")
        self.scheduler.heal()
        self.lives.extinguish()
        for faults in (*self.host.faults, self.host.store_faults):
            faults.failing.clear()
            faults.slow_ms = faults.slow_jobs_ms = 0.0
        for disk in self.host.disks:
            disk.heal()
        for each in (each for one in self.consumers for each in one.connections.values()):
            each.resume()
        for member in self.members:
            member.vanish()
        for producer in self.producers:
            producer.stop_flooding()

    def _quiet_ms(self) -> float:
        return DAMAGED_MS if self.ledger.is_damaged else QUIET_MS

    def _settle(self) -> None:
        """Wait until all open requests are answered, without sending new ones.

        A log that is read-only until a restart gets one.
        """
        self.scheduler.let_pass(REPAIR_MS, until=self._is_settled)
        for name, process in list(self.processes.items()):
            if isinstance(process, ShardProcess) and process.has_failed_for_good():
                self.lives.kill(name)
        left = self._batches_left() + 1
        while self._batches_left() < left:  # A small log makes producers slow, not stop.
            left = self._batches_left()
            self.scheduler.let_pass(self._quiet_ms(), until=self._is_settled)
        waits = [each.oldest_wait(self.clock.now_ns) for each in self._clients]
        longest_ms, whose = max(waits)
        if longest_ms > HANG_MS:
            raise Broken(f"{whose} has not been answered for {longest_ms:.0f} ms")
        lanes = (lane for each in self.producers for lane in each.lanes.values())
        unsent = [lane for lane in lanes if lane.batches and not self._is_full_for_good(lane)]
        if unsent:
            lane = unsent[0]
            name = f"{lane.incarnation.topic.name}-{lane.partition}"
            raise Broken(f"a producer's records for {name} are never taken")
        if busy := [each.name for each in self.transactors if each.is_busy]:
            raise Broken(f"a transaction of {busy[0]} does not end")

    def _is_full_for_good(self, lane: ProducerLane) -> bool:
        """Whether nobody seals, and the records that fill segments have filled a lane's log."""
        log = self.log_of(lane.incarnation, lane.partition)
        process = self.leading_process(log)
        if self.host.seals or process is None:
            return False
        words = process.shard.logs[log].words
        return bool(words[WORD_SPACE_END] - words[WORD_TAIL] < self.host.config.wal_segment_bytes)

    def _is_settled(self) -> bool:
        is_waiting = any(each.is_waiting() for each in self._clients)
        is_waiting |= any(each.is_busy for each in self.transactors)
        return not is_waiting and not self._batches_left()

    def _look_at_rights(self) -> None:
        """Each guest writes and reads once more; rules and users are as promised."""
        self.scheduler.let_pass(QUIET_MS, until=lambda: not self.permits.are_busy)
        self.scheduler.let_pass(2 * LOST_MS)  # Nothing that was lost happens any more.
        self.guardian.look()
        for incarnation in (found for each in GUARDED if (found := self.ledger.standing(each))):
            for writer in self.writers:
                writer.write(incarnation, 0)
            for reader in self.readers:
                reader.read(incarnation, 0, is_session=False)
        self.scheduler.let_pass(QUIET_MS, until=self._are_rights_seen)
        if self.permits.are_busy or self.guardian.unchecked:
            raise Broken(f"the administrator is not told of {sorted(self.guardian.unchecked)}")

    def _are_rights_seen(self) -> bool:
        guests = (*self.writers, *self.readers)
        return not self.guardian.unchecked and not any(each.is_waiting() for each in guests)

    def _batches_left(self) -> int:
        return sum(len(lane.batches) for each in self.producers for lane in each.lanes.values())

    def _read(self) -> None:
        standing = [each for each in self.ledger.all if not each.is_dying]
        for incarnation in standing:
            for partition in range(incarnation.topic.partition_count):
                self.reader.read(incarnation, partition)
        for transactions in TransactionTopics(self).all:
            self.committed_reader.read(transactions)
        self._check_groups()
        readers, have = (self.reader, self.committed_reader), -1
        unread = [*(each.unread for each in readers), *(each.unchecked for each in self.checkers)]
        while have < (have := sum(each.count for each in readers)):  # The network may be slow.
            self.scheduler.let_pass(self._quiet_ms(), until=lambda: not any(unread))
        if self.committed_reader.unread:
            raise Broken("what is committed cannot be read")
        if self.reader.unread:
            incarnation, partition = min(self.reader.unread, key=lambda each: each[0].topic.name)
            raise Broken(f"{incarnation.topic.name}-{partition} cannot be read")
        if untold := [each.name for each in self.checkers if each.unchecked]:
            raise Broken(f"what {min(untold)} has committed is not told")

    def _check_groups(self) -> None:
        for (group, incarnation, partition), kept in self.ledger.commits.items():
            if not incarnation.is_dying:
                [committer] = [each for each in self.checkers if each.name == group]
                committer.check(incarnation, partition, kept)

    def close(self) -> None:
        """Free everything."""
        for program in self._programs:
            program.close()
        for process in self.processes.values():
            process.release()
        self.processes.clear()
        self.host.close()
