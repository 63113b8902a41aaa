"""Random kills under load: is anything lost, duplicated, reordered, or changed under a reader?

`make kills SEED=…` or `python -m smq.testing.kill_run --kills 50 --records 2000000`; with
`--hurried` in a log so small that everything is sealed at once and read from segments.

An idempotent producer of librdkafka's sends numbered records to each partition, in rounds; in each
round one process of the broker, chosen by the seed (the supervisor among them), gets SIGKILL at a
moment chosen by the seed. The n-th record of a partition must be at offset n: that alone proves
that none is lost, duplicated or misplaced. A consumer reads meanwhile and keeps a checksum; at the
end everything is read again from the start and compared. The page cache must have dropped segments
by then.

The seed decides which process is killed and when; the machine's timing decides what that
interrupts.
"""

import argparse
import random
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from smq.app.process.clock import monotonic_ms
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing.page_cache import await_dropped
from smq.testing.smq_broker import SUPERVISOR, SmqBroker

TOPIC = "numbered"
PARTITIONS = 6
SHARDS = 2
VICTIMS = (*(f"shard-{i}" for i in range(1, SHARDS + 1)), "coordinator", "sealer", SUPERVISOR)
VALUE = struct.Struct("<qq84x")  # Partition and number; 100 bytes.
ROUND_MS_MAX = 400  # Sending takes at least this long, and a kill strikes somewhere in it.
BREATHS = 40  # Pauses of the sender per round, so that records are in flight at any moment of it.
QUIET_MS_MAX = 120_000  # Longer without any progress is a hang.
QUIET_MS_SAID = 5000  # Longer without any progress is reported, with who waits for what.
SEAL_MS = 2000  # So that sealing runs all the time.
# Records soon leave the ring and the page cache, so who reads from the start reads past both.
USUAL = MappingProxyType(
    {"ring.bytes": "8MiB", "wal.segment.bytes": "2MiB", "page.cache.bytes": "12MiB"}
)
# A log with little room: producers are slowed, sealing hurries, segments are small and soon merged,
# and slow readers read them through the sealer.
HURRIED = MappingProxyType(
    {
        "wal.bytes.max": "32MiB",
        "wal.keep.bytes": "0",
        "seal.bytes": "2MiB",
    }
)


Say = Callable[[str], object]


class Wrong(AssertionError):
    """The broker broke a promise."""


@dataclass
class KillRunReader:
    """Reads each partition in order; raises Wrong at the first misplaced record."""

    bootstrap: str
    next_offsets: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    checksums: list[dict[int, int]] = field(default_factory=lambda: [{} for _ in range(PARTITIONS)])

    def __post_init__(self) -> None:
        self._running = [0] * PARTITIONS
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
        self._consumer.assign(places)

    def read(self) -> int:
        """Take new records; return their number."""
        messages = self._consumer.consume(5000, 0.2)
        for message in messages:
            self._take(message)
        return len(messages)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if not error.retriable() and error.code() in _OF_CONTENT:
                raise Wrong(f"a reader gets the error: {error}")
            return  # A broker that is down for a moment.
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert isinstance(value, bytes)
        expected = self.next_offsets[partition]
        if offset != expected or VALUE.unpack(value) != (partition, expected):
            raise Wrong(
                f"partition {partition}: offset {offset} holds {VALUE.unpack(value)}, "
                f"where record {expected} should be"
            )
        self.next_offsets[partition] += 1
        self._running[partition] = zlib.crc32(value, self._running[partition])
        self.checksums[partition][expected] = self._running[partition]

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


# Errors about the records, not about the connection.
_OF_CONTENT = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG}  # noqa: SLF001


class Load:
    """The producer: numbered records, spread over the partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = [0] * PARTITIONS
        self.acknowledged = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": QUIET_MS_MAX,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, count: int) -> None:
        """Send that many more records, spread over a round; waits while librdkafka's queue is
        full."""
        for number in range(count):
            if number % (count // BREATHS) == 0:
                self._producer.poll(ROUND_MS_MAX / 1000 / BREATHS)
            partition = min(range(PARTITIONS), key=self.sent.__getitem__)
            value = VALUE.pack(partition, self.sent[partition])
            while True:
                try:
                    self._producer.produce(
                        TOPIC, value, partition=partition, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self.sent[partition] += 1
        self._producer.poll(0)

    def finish(self, say: Say) -> None:
        """Wait for every acknowledgement."""
        deadline_ms = monotonic_ms() + QUIET_MS_MAX
        while left := self._producer.flush(QUIET_MS_SAID / 1000):
            if monotonic_ms() > deadline_ms:
                raise Wrong(f"{left} records are still not acknowledged")
            say(f"waiting for the acknowledgements of {left:,} records")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise Wrong(f"a record was refused: {error}")
        self.acknowledged += 1


@contextmanager
def reading_along(reader: KillRunReader) -> Iterator[Callable[[], None]]:
    """Read in a thread; the block gets a check that raises the thread's error."""
    met: list[BaseException] = []
    stop = Event()

    def follow() -> None:
        try:
            while not stop.is_set():
                reader.read()
        except BaseException as failure:  # noqa: BLE001  (carried over to the main thread)
            met.append(failure)

    def check() -> None:
        if met:
            raise met[0]

    thread = Thread(target=follow)
    thread.start()
    try:
        yield check
    finally:
        stop.set()
        thread.join()
    check()


def read_up_to(reader: KillRunReader, ends: list[int], say: Say) -> None:
    """Read each partition to its end, and not beyond."""
    quiet_since_ms = said_ms = monotonic_ms()
    while reader.next_offsets != ends:
        if reader.read():
            quiet_since_ms = said_ms = monotonic_ms()
        if monotonic_ms() - quiet_since_ms > QUIET_MS_MAX:
            raise Wrong(f"read up to {reader.next_offsets}, but sent up to {ends}")
        if monotonic_ms() - said_ms > QUIET_MS_SAID:
            said_ms = monotonic_ms()
            say(f"waiting for records: read up to {reader.next_offsets}, sent up to {ends}")


def kill_run(  # noqa: PLR0913, PLR0917  (what is run, and how)
    directory: Path,
    seed: int,
    kills: int,
    records: int,
    say: Say,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """One run. Raises Wrong."""
    chance = random.Random(seed)  # noqa: S311  (no secret)
    settings = {"seal.ms": str(SEAL_MS), **USUAL, **settings, "shards": str(SHARDS)}
    with SmqBroker(directory, settings) as broker:
        with Cluster(broker.bootstrap) as cluster:
            create_topic(cluster, TOPIC, PARTITIONS)
        load, along = Load(broker.bootstrap), KillRunReader(broker.bootstrap)
        with reading_along(along) as check:
            for number in range(kills):
                sender = Thread(target=load.send, args=(records // kills,))
                sender.start()
                Event().wait(chance.uniform(0, ROUND_MS_MAX) / 1000)
                victim = chance.choice(VICTIMS)
                broker.kill(victim)
                broker.restart()
                sender.join()
                check()
                say(f"kill {number + 1} of {kills}: {victim}; {load.acknowledged:,} acknowledged")
            load.finish(say)
        read_up_to(along, load.sent, say)
        say("the reader that read along is at the end; now everything again")
        again = KillRunReader(broker.bootstrap)
        read_up_to(again, load.sent, say)
        if again.checksums != along.checksums:
            raise Wrong("what was read first is not what was read at the end")
        if settings.get("wal.keep.bytes") != "0":  # Else full segments do not stay.
            say(f"{await_dropped(broker.data_dir)} segments were dropped from the page cache")
        say(f"{sum(load.sent):,} records, {kills} kills: 0 lost, doubled, reordered or changed")
        for reader in (along, again):
            reader.close()


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--hurried", action="store_true", help="in a log with little room")
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    began_ms = monotonic_ms()

    def say(line: str) -> None:
        sys.stdout.write(f"{(monotonic_ms() - began_ms) / 1000:6.1f} s  {line}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="smq-") as directory:
        settings = HURRIED if given.hurried else {}
        kill_run(Path(directory), given.seed, given.kills, given.records, say, settings)


if __name__ == "__main__":
    main()
