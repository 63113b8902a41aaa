"""Workers that fork or spawn in the middle of things, as a training job's loader does.

`Loader` is the plainest twin of PyTorch's DataLoader with an IterableDataset: each worker gets the
dataset, inherited or pickled, with the client in it, reads its share and puts copies into a queue.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest

import smq
from smq.testing import broker as fresh_broker
from smq.testing.smq_broker import SmqBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 4
WAIT_S = 30.0
_names = map("pool-{}".format, count())


@pytest.fixture(scope="module")
def broker() -> Iterator[SmqBroker]:
    with fresh_broker() as broker:
        yield broker


@pytest.fixture(params=["shared memory", "kafka"])
def client(broker: SmqBroker, request: pytest.FixtureRequest) -> Iterator[smq.Client]:
    with broker.connect(transport=request.param) as client:
        yield client


@pytest.fixture
def topic(client: smq.Client) -> str:
    name = next(_names)
    client.create_topic(name, partitions=PARTITIONS)
    return name


@dataclass(frozen=True)
class Dataset:
    """Arrays of a topic; a worker reads every n-th partition."""

    client: smq.Client
    topic: str
    arrays: int

    def read(self, worker: int, workers: int) -> Iterator[np.ndarray]:
        mine = range(worker, PARTITIONS, workers)
        left = self.arrays // PARTITIONS * len(mine)
        with self.client.consumer(start="earliest") as consumer:
            consumer.assign((self.topic, partition) for partition in mine)
            while left:
                with consumer.poll(WAIT_S) as batch:
                    assert batch, f"{left} arrays are missing"
                    for array in batch.arrays():
                        yield array.copy()
                        left -= 1


def _work(dataset: Dataset, worker: int, workers: int, out: Any) -> None:
    for array in dataset.read(worker, workers):
        out.put(array)
    out.put(None)


class Loader:
    """Iterating it starts the workers; leaving the iteration early kills them."""

    def __init__(self, dataset: Dataset, workers: int, method: str) -> None:
        self._dataset, self._workers = dataset, workers
        self._context: Any = multiprocessing.get_context(method)
        self.processes: list[Any] = []

    def __iter__(self) -> Iterator[np.ndarray]:
        out = self._context.Queue(16)
        arguments = [(self._dataset, each, self._workers, out) for each in range(self._workers)]
        self.processes = [self._context.Process(target=_work, args=each) for each in arguments]
        for each in self.processes:
            each.start()
        try:
            ended = 0
            while ended < self._workers:
                array = out.get(timeout=WAIT_S)
                ended += array is None
                if array is not None:
                    yield array
        finally:
            for each in self.processes:
                each.terminate()
                each.join(WAIT_S)
            out.close()
            out.join_thread()


def send_arrays(client: smq.Client, topic: str, arrays: int) -> None:
    with client.producer() as producer:
        for number in range(arrays):
            array = np.full((3, 50), number, np.int32)
            producer.send_array(topic, array, partition=number % PARTITIONS)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_every_array_once_in_every_epoch(
    client: smq.Client, topic: str, method: str
) -> None:
    send_arrays(client, topic, 200)
    loader = Loader(Dataset(client, topic, 200), 2, method)
    for _ in range(2 if method == "fork" else 1):  # Importing it all anew takes seconds.
        seen = list(loader)
        assert all(array.shape == (3, 50) for array in seen)
        assert all((array == array[0, 0]).all() for array in seen)
        assert sorted(int(array[0, 0]) for array in seen) == [*range(200)]
    send_arrays(client, topic, 4)  # The parent's client goes on.


def test_an_epoch_that_ends_early_leaves_no_worker_waiting(client: smq.Client, topic: str) -> None:
    send_arrays(client, topic, 400)
    loader = Loader(Dataset(client, topic, 400), 2, "fork")
    for _ in range(5):
        for number, _array in enumerate(loader):
            if number == 7:
                break
        assert all(not each.is_alive() for each in loader.processes)
    assert len([*loader]) == 400


def test_workers_that_are_killed_leave_the_parent_and_its_broker_as_they_were(
    client: smq.Client, broker: SmqBroker, topic: str
) -> None:
    send_arrays(client, topic, 400)
    lives = broker.pids()
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        out = context.Queue(2)
        dataset = Dataset(client, topic, 400)
        victim = context.Process(target=_work, args=(dataset, 0, 1, out))
        victim.start()
        assert out.get(timeout=WAIT_S) is not None
        assert victim.pid
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(WAIT_S)
        out.close()
        out.join_thread()
        assert sorted(int(each[0, 0]) for each in dataset.read(0, 1)) == [*range(400)]
    assert broker.pids() == lives


def test_forks_under_load_neither_hang_nor_send_twice(client: smq.Client, topic: str) -> None:
    """A fork may find every lock of the parent's threads held."""
    done = threading.Event()
    sent = 0
    with client.producer() as producer:

        def load() -> None:
            nonlocal sent
            while not done.is_set():
                producer.send(topic, b"parent", partition=0)
                sent += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            children = [_fork_and_send(producer, topic) for _ in range(20)]
            for child in children:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            done.set()
            thread.join()
        producer.flush(WAIT_S)
    values = _values(client, topic, {(topic, 0): sent, (topic, 1): 200})
    assert values.count(b"parent") == sent
    assert values.count(b"child") == 200


def _fork_and_send(producer: smq.Producer, topic: str) -> int:
    pid = os.fork()
    if pid == 0:  # Nothing of pytest's must run in the child.
        code = 1
        try:
            for _ in range(10):
                producer.send(topic, b"child", partition=1)
            producer.flush(WAIT_S)
            code = 0
        finally:
            os._exit(code)
    return pid


def _values(client: smq.Client, topic: str, ends: dict[tuple[str, int], int]) -> list[bytes]:
    with client.consumer(topic, start="earliest") as consumer:
        return [bytes(record.value or b"") for record in consumer.read_until(ends)]


IDLE_POLLS_MAX = 6  # A worker that finds nothing for so long has nothing left to do.


def _share(client: smq.Client, topic: str, group: str) -> list[int]:
    seen, idle = list[int](), 0
    with client.consumer(topic, group=group, start="earliest") as consumer:
        while idle < IDLE_POLLS_MAX:
            with consumer.poll(0.5) as batch:
                seen += [int(array[0, 0]) for array in batch.arrays()]
                idle = 0 if batch else idle + 1
            consumer.commit()
    return seen


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_may_share_a_group(client: smq.Client, topic: str, method: str) -> None:
    send_arrays(client, topic, 100)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, context) as pool:
        shares = [pool.submit(_share, client, topic, f"of-{topic}") for _ in range(2)]
        seen = [number for share in shares for number in share.result(WAIT_S)]
    assert set(seen) == {*range(100)}
