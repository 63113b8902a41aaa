"""Kills producers in the middle of a write: does their shard stall, is anything torn or lost?

`python -m smq.testing.door_kill_run --kills 2000 --seed …`.

Each victim is a fork that attaches to the shard, hands over numbered records through shared memory
and dies by SIGKILL: half of them kill themselves at a step of a write that the seed chooses, we
kill the others at any moment. A witness process with a session of its own sends request after
request meanwhile and measures the slowest, minus the time for which the machine ran other processes
instead of it and the shard. A reader checks the log meanwhile: of each victim it holds the records
0, 1, 2 … without a gap, including all acknowledged ones, and none in part. At the end everything is
read again over the wire, most of it past the page cache, which keeps little.
"""

import argparse
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from select import POLLIN, poll
from time import monotonic_ns

import numpy as np

from shm.kernels.session.client import publish_request
from shm.warm.client import warm_client
from smq.client.door.door import Door
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing.page_cache import await_dropped
from smq.testing.smq_broker import SmqBroker, SmqCommand
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from smq.wire.records import Record, read_batches, write_batch

TOPIC, WITNESS = "victims", "witness"
PRODUCE, VERSION = 0, 9
RECORD = struct.Struct("<qq")  # Victim and number; random padding follows.
PADDING_BYTES_MAX = 20_000
WRITES_MAX = 30  # Of a victim that kills itself; the others continue until they are killed.
UNTIL_KILLED = 400  # … or have written so much: five of them fill half of the ring.
STEPS = ("attached", "room", "half", "whole", "published", "rung", "asleep", "answered")
LOOK_EVERY = 5  # Kills: the ring still holds their records.
# At the end most records have left the ring and the page cache.
SETTINGS = {
    "shards": "1",
    "ring.bytes": "32MiB",
    "wal.segment.bytes": "2MiB",
    "page.cache.bytes": "6MiB",
}
MOMENT_MS_MAX = 50.0  # Length of a victim's life, from its attaching.
STILL_MS_MAX = 100.0  # The longest allowed stall of the shard.
ANSWER_SECONDS_MAX = 30.0
QUIET_SECONDS_MAX = 120.0  # Longer without another record is a loss.


class Wrong(AssertionError):
    """The broker broke a promise."""


class Mortal(Door):
    """A door whose user may die at each step."""

    die: Callable[[str], None]

    def commit(self, used_bytes: int) -> None:
        self.die("whole")
        must_ring = publish_request(self._memory, self._side, used_bytes)
        self.die("published")
        if must_ring:
            self._ring()
        self.die("rung")


def request(topic: str, value: bytes) -> bytes:
    """A Produce request of one record for partition 0, with its size."""
    batch = write_batch([Record(0, 0, None, value, ())])
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))]
    )
    writer = Writer()
    write_request_header(RequestHeader(PRODUCE, VERSION, 0, "victim"), writer)
    asked = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    write_produce_request(asked, VERSION, writer)
    body = writer.to_bytes()
    return len(body).to_bytes(4) + body


class Fate:
    """A victim's fate, chosen by the seed: when we kill it, or at which step it kills itself."""

    def __init__(self, seed: int, victim: int) -> None:
        self.victim = victim
        self.chance = random.Random(f"{seed} {victim}")  # noqa: S311  (no secret)
        self.moment_ms = self.chance.uniform(0, MOMENT_MS_MAX)
        self.writes, self.step = UNTIL_KILLED, ""
        if self.chance.random() < 0.5:
            self.moment_ms = ANSWER_SECONDS_MAX * 1000
            self.writes = self.chance.randrange(1, WRITES_MAX)
            self.step = self.chance.choice(STEPS)


def live(broker: SmqBroker, fate: Fate, acked: np.ndarray) -> None:
    """Run a victim in a fork; does not return."""
    number = 0

    def die(step: str) -> None:
        if number == fate.writes - 1 and step == fate.step:
            os.kill(os.getpid(), signal.SIGKILL)

    door = open_door(broker, Mortal)
    door.die = die  # type: ignore[attr-defined]
    while number < fate.writes:
        die("attached")
        value = RECORD.pack(fate.victim, number) + bytes(fate.chance.randrange(PADDING_BYTES_MAX))
        data = np.frombuffer(request(TOPIC, value), np.uint8)
        room = door.reserve_until(len(data), monotonic_ns() + int(ANSWER_SECONDS_MAX * 1e9))
        die("room")
        room[: len(data) // 2] = data[: len(data) // 2]
        die("half")
        room[:] = data
        door.commit(len(data))
        door.arm()
        die("asleep")
        door.disarm()
        acked[fate.victim] += len(door.answers())
        die("answered")
        number += 1
    assert not fate.step, "a victim has survived"
    signal.pause()


def open_door(broker: SmqBroker, kind: type[Door] = Door) -> Door:
    """A door to the only shard."""
    return kind.open(broker.runtime_dir.parent, 1, broker.runtime_dir.name)


def fork(act: Callable[[], object]) -> int:
    """Run a function in a fork, which then ends."""
    pid = os.fork()
    if not pid:
        try:
            act()
        finally:
            os._exit(1)
    return pid


def queued_ns(pids: Sequence[int]) -> int:
    """How long in all these processes were runnable while the machine ran others."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids)


def witness(broker: SmqBroker, longest_ns: np.ndarray) -> None:
    """Send one request after another, for ever; record the slowest."""
    door, data = open_door(broker), np.frombuffer(request(WITNESS, b"here"), np.uint8)
    pids = (os.getpid(), broker.status().processes["shard-1"].pid)
    while True:
        start, queued = monotonic_ns(), queued_ns(pids)
        door.reserve_until(len(data), start + int(ANSWER_SECONDS_MAX * 1e9))[:] = data
        door.commit(len(data))
        while not door.answers():
            if not door.wait(ANSWER_SECONDS_MAX):
                longest_ns[0] = 2**62
        took = monotonic_ns() - start - (queued_ns(pids) - queued)
        longest_ns[0] = max(longest_ns[0], took)
        longest_ns[1] += 1


@contextmanager
def beside(act: Callable[[], object]) -> Iterator[None]:
    """Run a function in another process for the block."""
    pid = fork(act)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def end(pid: int, after_ms: float) -> None:
    """Kill a victim after this long, or wait for its own death."""
    pidfd, its_end = os.pidfd_open(pid), poll()
    its_end.register(pidfd, POLLIN)
    its_end.poll(after_ms)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    if not os.WIFSIGNALED(status):
        raise Wrong("a victim has failed before it was killed")


class Check:
    """Reads the log during the run; raises Wrong at the first misplaced record.

    `found` counts the records of each victim.
    """

    def __init__(self, broker: SmqBroker, kills: int) -> None:
        self.found = [0] * kills
        self._entry = 0
        self._door = open_door(broker)
        topic = self._door.catalog().by_name[TOPIC]
        self._reader = self._door.readers[topic.logs[0]]
        self._number = topic.partition_numbers[0]

    def read(self) -> None:
        """Read new records; only the witness writes meanwhile."""
        snapshot = self._reader.snapshot(self._entry)
        if snapshot.first != self._entry:
            raise Wrong("the ring is too small for this many records between two looks")
        for place in self._reader.places(snapshot, self._number):
            (batch,) = read_batches(place.data.tobytes())
            (record,) = batch.records()
            victim, count = RECORD.unpack(bytes(record.value or b"")[: RECORD.size])
            if count != self.found[victim]:
                raise Wrong(f"victim {victim}: record {count} where {self.found[victim]} should be")
            self.found[victim] += 1
        if not snapshot.is_intact():
            raise Wrong("the ring has overtaken us")
        self._entry = snapshot.end

    def close(self) -> None:
        """Leave the shard."""
        self._door.close()

    def finish(self, acked: Sequence[int]) -> None:
        """Check that all acknowledged records are there and visible."""
        self.read()
        for victim, (has, promised) in enumerate(zip(self.found, acked, strict=True)):
            if has < promised:
                raise Wrong(f"victim {victim}: {promised} were acknowledged, {has} are there")
        if self._reader.high_watermarks()[self._number] != sum(self.found):
            raise Wrong("not all that was written is visible")


def read_again(broker: SmqBroker, count: int) -> Mapping[int, int]:
    """How many records of each victim there are, read over the wire from the first on.

    Raises Wrong when none comes any more, and there should be `count`.
    """
    found: defaultdict[int, int] = defaultdict(int)
    read, since_ns = 0, monotonic_ns()
    with (
        broker.connect(transport="kafka") as client,
        client.consumer(TOPIC, start="earliest") as consumer,
    ):
        while read < count:
            with consumer.poll() as batch:
                for record in batch:
                    victim, number = RECORD.unpack(bytes(record.value or b"")[: RECORD.size])
                    if number != found[victim]:
                        there = found[victim]
                        raise Wrong(f"victim {victim}: record {number} is read in place of {there}")
                    found[victim] += 1
                    read, since_ns = read + 1, monotonic_ns()
            if monotonic_ns() - since_ns > QUIET_SECONDS_MAX * 1e9:
                raise Wrong(f"{read} of {count} records are read again, and no other one comes")
    return found


def door_kill_run(directory: Path, seed: int, kills: int, say: Callable[[str], object]) -> None:
    """One run. Raises Wrong."""
    acked = np.frombuffer(mmap.mmap(-1, 8 * max(kills, 512)), np.int64)
    longest_ns = np.frombuffer(mmap.mmap(-1, 4096), np.int64)
    with SmqCommand(directory, SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for name in (TOPIC, WITNESS):
                create_topic(cluster, name, 1)
        warm_client()  # For all forks.
        pids = broker.pids()
        with closing(Check(broker, kills)) as check:
            with beside(lambda: witness(broker, longest_ns)):
                for victim in range(kills):
                    fate = Fate(seed, victim)
                    end(fork(partial(live, broker, fate, acked)), fate.moment_ms)
                    if victim % LOOK_EVERY == LOOK_EVERY - 1:
                        check.read()
                        waited_ms = longest_ns[0] / 1e6
                        say(f"kill {victim + 1} of {kills}; the longest wait: {waited_ms} ms")
            if broker.pids() != pids:
                raise Wrong(f"a process of the broker has died:\n{broker.tail()}")
            check.finish(acked[:kills].tolist())
        say(f"{await_dropped(broker.data_dir)} segments were dropped from the page cache")
        again = read_again(broker, sum(check.found))
        if [again[victim] for victim in range(kills)] != check.found:
            raise Wrong("what is read from the log is not what the ring had")
    count = sum(check.found)
    say(f"{kills} kills, {count:,} records: none torn, none lost of {acked.sum():,} acknowledged")
    waited_ms = longest_ns[0] / 1e6
    say(f"the witness waited {waited_ms:.1f} ms at most, of {longest_ns[1]:,} times")
    if waited_ms > STILL_MS_MAX:
        raise Wrong(f"the shard stood still for {waited_ms:.1f} ms")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=2000)
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    with tempfile.TemporaryDirectory(prefix="smq-") as directory:
        door_kill_run(
            Path(directory), given.seed, given.kills, lambda line: sys.stdout.write(line + "\n")
        )


if __name__ == "__main__":
    main()
