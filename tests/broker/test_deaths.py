"""Deaths on the way of a record from the log to the filer: nothing lost, nothing twice.

    file synced  →  line in the manifest  →  checkpoint  →  segment of the log recycled

Between two steps the broker is held by stopping the process that has to take the next one. Then one
is killed, the others go on, and the producer, which has not heard, sends again what was sealed.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from smq.app.process.clock import wall_ms
from smq.client.kafka.cluster import Cluster, check
from smq.log.files.checkpoint import Checkpoint
from smq.testing.kill_run import kill_run
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import SETTINGS, OneTopic
from tests.broker.questions import INIT_PRODUCER_ID

SHARD, COORDINATOR, SEALER = "shard-1", "coordinator", "sealer"
VICTIMS = (SHARD, COORDINATOR, SEALER, SUPERVISOR)
RETRIED = 5  # Batches that a producer is remembered by.


@contextmanager
def stopped(broker: SmqBroker, name: str) -> Iterator[None]:
    """A process that does not move, until the end of the block if it is still there."""
    pid = broker.status().processes[name].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class IdempotentProducer:
    """Sends numbered batches, and again those it has sent."""

    def __init__(self, topic: OneTopic) -> None:
        self._topic = topic
        request = InitProducerIdRequest(transactional_id=None)
        given = topic.cluster.anyone().ask(INIT_PRODUCER_ID, request)
        check(given.error_code)
        self._id, self._epoch = given.producer_id, given.producer_epoch
        self.sent: list[bytes] = []

    def send(self) -> None:
        """The next batch."""
        number = len(self.sent)
        batch = write_batch(
            [Record(0, wall_ms(), b"%d" % number, bytes(1000))],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=number,
        )
        assert self._topic.append(batch) == number
        self.sent.append(batch)

    def send_again(self) -> None:
        """The last ones: each is answered as it was the first time."""
        first = max(0, len(self.sent) - RETRIED)
        for number, batch in enumerate(self.sent[first:], first):
            assert self._topic.append(batch) == number

    def everything_is_there_once(self) -> None:
        """And nothing else."""
        records = self._topic.records(len(self.sent))
        assert [record.key for record in records] == [b"%d" % n for n in range(len(self.sent))]
        assert self._topic.offset_at(-1) == len(self.sent)


def everybody_knows(broker: SmqBroker, topic: OneTopic, end: int) -> None:
    """All below `end` is sealed, and the shard's checkpoint has it: nobody asks for an answer that
    the next process to be stopped owes."""
    topic.wait_sealed(end)

    def known() -> bool:
        checkpoint, _ = Checkpoint.load(broker.data_dir / "logs" / "0")
        rows = checkpoint.partitions if checkpoint is not None else []
        return any(each.number == topic.number and each.sealed_end >= end for each in rows)

    eventually(known, "the shard knows what is sealed")


def wait_for_file(topic: OneTopic, offset: int) -> None:
    """Until a file begins with a record that was not sealed yet. Any other new one is a merge's."""
    start = f"/{offset:020d}-"
    eventually(lambda: any(start in key for key in topic.files()), f"offset {offset} has a file")


def die_with_a_file_and_no_line(
    broker: SmqBroker, topic: OneTopic, producer: IdempotentProducer, victim: str
) -> None:
    with stopped(broker, COORDINATOR):
        producer.send()
        wait_for_file(topic, len(producer.sent) - 1)
        broker.kill(victim)


def die_with_a_line_and_no_checkpoint(
    broker: SmqBroker, topic: OneTopic, producer: IdempotentProducer, victim: str
) -> None:
    with ExitStack() as held:
        with stopped(broker, COORDINATOR):
            producer.send()
            wait_for_file(topic, len(producer.sent) - 1)
            held.enter_context(stopped(broker, SHARD))
        topic.wait_sealed(len(producer.sent))
        broker.kill(victim)


def die_with_a_checkpoint_that_is_new(
    broker: SmqBroker, topic: OneTopic, producer: IdempotentProducer, victim: str
) -> None:
    checkpoint = broker.data_dir / "logs" / "0" / "checkpoint"

    def written() -> int:
        return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0

    before = written()
    producer.send()
    eventually(lambda: written() > before, "there is a new checkpoint")
    broker.kill(victim)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "die",
    [
        die_with_a_file_and_no_line,
        die_with_a_line_and_no_checkpoint,
        die_with_a_checkpoint_that_is_new,
    ],
)
def test_a_retry_from_before_the_sealing_is_no_duplicate_after_any_death(
    tmp_path: Path, die: Callable[[SmqBroker, OneTopic, IdempotentProducer, str], None]
) -> None:
    settings = {**SETTINGS, "filer.sweep.ms": "1000"}
    with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "topic")
        producer = IdempotentProducer(topic)
        for victim in 2 * VICTIMS:
            producer.send()
            everybody_knows(broker, topic, len(producer.sent))
            die(broker, topic, producer, victim)
            broker.restart()
            cluster.forget()
            producer.send_again()
            topic.wait_sealed(len(producer.sent))
            producer.send_again()
            producer.everything_is_there_once()
        filler = OneTopic(broker, cluster, "filler")
        filler.append_filler(20)
        filler.wait_recycled(4 * 1024 * 1024)
        for victim in VICTIMS:
            producer.send_again()
            producer.everything_is_there_once()
            broker.kill(victim)
            broker.restart()
            cluster.forget()
        eventually(lambda: topic.files() == topic.named_files(), "what nothing names is swept")
        producer.send()


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_anybody_dies_while_everything_is_being_sealed_and_recycled(tmp_path: Path) -> None:
    said: list[str] = []
    settings = {
        **SETTINGS,
        "message.max.bytes": "1048588",  # What librdkafka makes its batches for.
        "wal.segment.bytes": "2MiB",
        "filer.sweep.ms": "1000",
    }
    kill_run(tmp_path, 5, 12, 600_000, said.append, settings)
    assert "0 lost" in said[-1]
