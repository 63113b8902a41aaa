"""The agent, shards, subscribers and publishers die under load; `make kills` has more of it.

What holds, whoever dies and whenever:

- A publish that was acknowledged is in the log, at the offset that its answer named.
- Every record comes to a subscriber.
- A group's commit is not above a record that no subscriber has acknowledged.
- A stream that begins after a commit was seen gets no record below it.
- A record that was acknowledged comes again only if a lower one was not, or if it was acknowledged
  shortly before a death or before its partition went to another instance.
"""

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, Topic
from smq.app.agent.commits import LATE_S
from smq.client.kafka.group_admin import committed_offsets
from smq.client.locate import cluster_at
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, opened, stubs_of
from tests.app.agent.streams import topic_of

PARTITIONS, GROUP = 3, "mortals"
INSTANCES = ("a", "b")
SHARDS = 2
VICTIMS = (
    *("agent", "agent", "subscriber", "subscriber", "publisher", "coordinator"),
    *(f"shard-{number}" for number in range(1, SHARDS + 1)),
)
ROUND_RECORDS = 300  # Published and delivered before somebody dies.
UNACKED_MAX = 100
QUIET_S_MAX = 240.0
MOMENT_S_MAX = 0.4
ON_ITS_WAY_S = 2.0
"""An acknowledgement, from its client into the store. On a machine with a load a commit that meets
a shard or coordinator which has just begun has taken half a second, and so may the next one."""
ROOT = Path(__file__).parents[2]


class MortalPublisher:
    """Publishes numbers to a partition; what is not acknowledged is sent again."""

    def __init__(self, address: str, topic: Topic, partition: Partition) -> None:
        self._address, self._topic, self._partition = address, topic, partition
        self.offsets: dict[int, int] = {}  # Of the numbers that are acknowledged.
        self._call: Any = None
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def die(self) -> None:
        """The connection ends in the middle of what was sent."""
        if self._call is not None:
            self._call.cancel()

    def stop(self) -> None:
        self._stop.set()
        self.die()
        self._thread.join(QUIET_S_MAX)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        service = pb.DESCRIPTOR.services_by_name["SeaweedMessaging"]
        while not self._stop.is_set():
            with grpc.insecure_channel(self._address) as channel, suppress(grpc.RpcError):
                self._publish(stubs_of(service, channel))
            self._stop.wait(0.1)

    def _publish(self, broker: Any) -> None:
        requests: SimpleQueue[Any] = SimpleQueue()
        said = pb.PublishMessageRequest.InitMessage(
            topic=self._topic, partition=self._partition, ack_interval=1
        )
        requests.put(pb.PublishMessageRequest(init=said))
        number = first = len(self.offsets)
        self._call = broker.PublishMessage(
            iter(requests.get, None), wait_for_ready=True, timeout=None
        )
        try:
            next(self._call)  # The answer to init.
            while not self._stop.is_set():
                while number - len(self.offsets) < UNACKED_MAX:
                    data = pb.DataMessage(key=b"k", value=b"%d" % number)
                    requests.put(pb.PublishMessageRequest(data=data))
                    number += 1
                answer = next(self._call)
                if answer.error:
                    return
                assert answer.ack_ts_ns, f"{first}: an answer to no record: {answer}"
                self.offsets[len(self.offsets)] = answer.assigned_offset
        except StopIteration:
            pass
        finally:
            requests.put(None)


class MortalSubscriber:
    """A subscriber in a process of its own, which begins again when it was killed."""

    def __init__(self, address: str, topic: Topic, name: str, path: Path) -> None:
        self._arguments = [address, topic.namespace, topic.name, GROUP, name, str(path)]
        self._path = path
        path.touch()
        self.begin()

    def begin(self) -> None:
        module = [sys.executable, "-m", "tests.app.agent.mortal_subscriber"]
        self._process = subprocess.Popen([*module, *self._arguments], cwd=ROOT)

    def die(self) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self) -> list[list[str]]:
        """What it has written so far, whole lines."""
        text = self._path.read_text().rpartition("\n")[0]
        return [line.split() for line in text.splitlines()]


class Delivery(NamedTuple):
    """A record that has come to a session; `time_ns`: then, and at `acked_ns` it was
    acknowledged."""

    session: int
    offset: int
    time_ns: int


class Outage(NamedTuple):
    """The time, in ns, in which no commit came through: the coordinator, or a shard that relays to
    it, was dead."""

    begin_ns: int
    end_ns: int

    def within_ns(self, begin_ns: int, end_ns: int) -> int:
        """How much of it lies in a range of time."""
        return max(0, min(self.end_ns, end_ns) - max(self.begin_ns, begin_ns))


class PartitionHistory:
    """What subscribers got of a partition, in the order of time, and when each record was
    acknowledged first."""

    def __init__(
        self, deliveries: list[Delivery], acks: dict[int, int], outages: list[Outage]
    ) -> None:
        self._deliveries = sorted(deliveries, key=lambda each: each.time_ns)
        self._acks, self._outages = acks, outages

    def unexplained(self, deaths: list[int]) -> Iterator[str]:
        """Records that come again for no reason, given when somebody died."""
        begun: dict[int, int] = {}
        for each in self._deliveries:
            begins = begun.setdefault(each.session, each.time_ns)
            acked = self._acks.get(each.offset, begins)
            if acked < begins and not self._is_explained(each.offset, acked, begins, deaths):
                late_ms = [(begins - acked) // 10**6]
                late_ms += [(death - acked) // 10**6 for death in deaths if acked < death < begins]
                yield f"offset {each.offset} comes again {late_ms} ms after its acknowledgement"

    def _is_explained(self, offset: int, acked: int, begins: int, deaths: list[int]) -> bool:
        """Whether the acknowledgement was hardly there, or a lower record had none."""
        moment = min([begins, *(each for each in deaths if acked < each < begins)])
        away_ns = sum(each.within_ns(acked, moment) for each in self._outages)
        if moment - acked - away_ns <= (LATE_S + ON_ITS_WAY_S) * 1e9:
            return True
        lower = (self._acks.get(each, inf) for each in range(offset))
        return any(each > moment for each in lower)


class Deaths:
    """A run, and what it has seen."""

    def __init__(self, broker: SmqBroker, path: Path) -> None:
        self.broker = broker
        with opened(broker) as doors:
            self.topic, ranges = topic_of(doors, PARTITIONS)
        status = broker.status()
        self.publishers = [MortalPublisher(status.grpc, self.topic, each) for each in ranges]
        self.subscribers = [
            MortalSubscriber(status.agent, self.topic, each, path / each) for each in INSTANCES
        ]
        self.seen: list[tuple[int, dict[int, int]]] = []  # Commits, and when.
        # When an agent or a subscriber was dead, in ns, with what was on its way.
        self.agent_deaths: list[int] = []
        self.subscriber_deaths: list[int] = []
        self.outages: list[Outage] = []

    @property
    def name(self) -> str:
        return f"{self.topic.namespace}.{self.topic.name}"

    def say(self, what: str) -> None:
        count, delivered = self.acknowledged(), len(self.delivered())
        sys.stdout.write(f"{what}; {count} acknowledged, {delivered} delivered\n")

    def acknowledged(self) -> int:
        return sum(len(each.offsets) for each in self.publishers)

    def lines(self) -> list[list[str]]:
        return [line for each in self.subscribers for line in each.lines()]

    def delivered(self) -> set[tuple[int, int]]:
        return {(int(each[1]), int(each[2])) for each in self.lines()}

    def look(self) -> None:
        """See the group's commits: nothing above them is unacknowledged."""
        with cluster_at(self.broker.data_dir) as cluster:
            found = committed_offsets(cluster, GROUP)
        commits = {name.partition: offset for name, offset in found.items()}
        acks = {(int(each[1]), int(each[2])) for each in self.lines() if each[0] == "ack"}
        for partition, commit in commits.items():
            missing = [each for each in range(commit) if (partition, each) not in acks]
            assert not missing, f"{partition}: commit {commit} is above {missing[:5]}"
        self.seen.append((time.monotonic_ns(), commits))

    def check_streams(self) -> None:
        """No stream got a record below a commit that was seen before it began."""
        for line in self.lines():
            if line[0] != "ack":
                session, partition, offset, _ = map(int, line)
                before = [each for when, each in self.seen if when < session]
                least = max((each.get(partition, 0) for each in before), default=0)
                assert offset >= least, f"{partition}-{offset} comes again: {least} was committed"

    def check_duplicates(self) -> int:
        """Each record that was acknowledged and came again has a reason; how many came again."""
        deliveries = defaultdict[int, list[Delivery]](list)
        acks = defaultdict[int, dict[int, int]](dict)
        for line in self.lines():
            if line[0] == "ack":
                continue
            session, partition, offset, time_ns = map(int, line)
            deliveries[partition].append(Delivery(session, offset, time_ns))
            # What had come still came out of the socket of a dead agent, to which no ack came.
            if not any(session < death < time_ns for death in self.agent_deaths):
                acked = acks[partition]
                acked[offset] = min(time_ns, acked.get(offset, time_ns))
        deaths = [*self.agent_deaths, *self.subscriber_deaths]
        for partition, found in deliveries.items():
            history = PartitionHistory(found, acks[partition], self.outages)
            left = [*history.unexplained(deaths)]
            assert not left, f"partition {partition}: {len(left)} records: {left[:5]}"
        return sum(len(each) for each in deliveries.values()) - len(self.delivered())

    def check_log(self) -> set[tuple[int, int]]:
        """What was acknowledged is where its answer said; returns what is there now.

        The agent may append more: of a publisher that has gone it finishes what it had received.
        """
        with (
            self.broker.connect() as client,
            client.consumer(self.name, start="earliest") as consumer,
        ):
            found = consumer.read_until(consumer.find("latest"))
            values = {(each.partition, each.offset): bytes(each.value or b"") for each in found}
        for partition, publisher in enumerate(self.publishers):
            for number, offset in publisher.offsets.items():
                assert values[partition, offset] == b"%d" % number, f"{partition}-{offset}"
        return {*values}


def soon(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + QUIET_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {QUIET_S_MAX:.0f} s"
        time.sleep(0.1)


@contextmanager
def deaths(path: Path) -> Iterator[Deaths]:
    """A broker under load."""
    settings = {**SETTINGS, "shards": f"{SHARDS}"}
    with SmqBroker(path / "data", settings) as broker:
        run = Deaths(broker, path)
        try:
            yield run
        finally:
            for each in run.publishers:
                each.stop()
            for subscriber in run.subscribers:
                subscriber.die()


def kill_some(path: Path, seed: int, kills: int) -> None:
    """Kill so many, and check what holds."""
    victims: list[str] = []
    chance = random.Random(seed)
    with deaths(path) as run:
        for number in range(kills):
            published, delivered = run.acknowledged(), len(run.delivered())
            what = f"seed {seed}, kill {number}: "
            soon(lambda: run.acknowledged() >= published + ROUND_RECORDS, f"{what}publishing")  # noqa: B023
            soon(lambda: len(run.delivered()) >= delivered + ROUND_RECORDS, f"{what}delivering")  # noqa: B023
            time.sleep(chance.uniform(0, MOMENT_S_MAX))
            run.look()
            if not victims:
                victims = chance.sample(VICTIMS, len(VICTIMS))
            victim = victims.pop()
            run.say(f"{what}{victim}")
            if victim == "publisher":
                chance.choice(run.publishers).die()
            elif victim == "subscriber":
                subscriber = chance.choice(run.subscribers)
                subscriber.die()
                run.subscriber_deaths.append(time.monotonic_ns())
                subscriber.begin()
            else:
                killed_ns = time.monotonic_ns()
                run.broker.kill(victim)
                if victim == "agent":
                    run.agent_deaths.append(time.monotonic_ns())
                run.broker.restart()
                if victim != "agent":
                    run.outages.append(Outage(killed_ns, time.monotonic_ns()))
            run.check_streams()
        for each in run.publishers:
            each.stop()
        there = run.check_log()
        soon(lambda: there <= run.delivered(), f"seed {seed}: the rest is delivered")
        run.look()
        run.check_streams()
        run.say(f"seed {seed}: {run.check_duplicates()} came again")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_deaths_lose_no_acknowledged_record_and_all_is_delivered(tmp_path: Path) -> None:
    kill_some(tmp_path, seed=int(os.environ.get("SEED", "3")), kills=8)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundred_deaths_lose_nothing(tmp_path: Path) -> None:
    kill_some(tmp_path, seed=int(os.environ.get("SEED", "5")), kills=100)
