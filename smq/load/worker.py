"""A process of the load generator: producers, consumers or idle connections, one thread each.

Run as `python -m smq.load.worker`. The first line of JSON on stdin defines its role, later ones
are commands; it writes its counts to stdout as a line of JSON per second. Times are in ns of this
machine's monotonic clock, which all processes share.

    in   {"kind", "bootstrap", "workload", "topics" | "members" | "connections", "start_ns",
          "run_pid"}
         {"go": {"rate", "limit", "start_ns"}}     producers: a rate each, or null for unlimited
         {"stop": true}                            finish, report the rest, end
    out  {"ready": true}                           connected; consumers have their partitions
         {"second", "sent", "acked", …}            since the previous line; encoded histograms
         {"reached": true}                         the limit was sent and acknowledged
         {"done": true} | {"error": sentence}
"""

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from smq.app.process.clock import monotonic_ns, sleep
from smq.load.clients import (
    CommitFailed,
    LoadConsumer,
    LoadProducer,
    QueueFull,
    consumer_of,
    producer_of,
)
from smq.load.connections import hold
from smq.load.histogram import Latencies
from smq.load.schedule import NS, Schedule
from smq.load.workload import REFERENCE, Workload

Told = dict[str, Any]
TOLD_RATE_MAX = 20_000  # Messages a second of one producer whose latency is measured.
TOLD_EVERY_MAX, TOLD_BYTES = 50, 100_000  # At full speed: one for this many messages or bytes.
BURST = 500  # Messages between two checks of outcomes and commands.
NAP_S_MAX = 0.01
POLL_S = 0.1
FINISH_S = 60.0
ORPHAN_S = 1.0  # Between two checks that the run still lives.
SWITCH_S = 0.0005  # Python's 5 ms between thread switches would show up as latency.


class Tally:
    """Counts and latencies since the last report, by name. Thread-safe."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._latencies: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, name: str, count: int) -> None:
        """Count something."""
        with self._lock:
            self._counts[name] += count

    def late(self, name: str, since_ns: list[int], until_ns: int = 0) -> None:
        """Record the time from each moment to another one, by default now."""
        until_ns = until_ns or monotonic_ns()
        with self._lock:
            self._latencies[name] += [(until_ns - each) // 1000 for each in since_ns]

    def report(self, second: int) -> Told:
        """Take everything since the last report."""
        with self._lock:
            counts, self._counts = self._counts, defaultdict(int)
            latencies, self._latencies = self._latencies, defaultdict(list)
        encoded = {}
        for name, values in latencies.items():
            histogram = Latencies()
            histogram.record(values)
            encoded[name] = histogram.encoded()
        return {"second": second, **counts, "latencies": encoded}


def told_every(workload: Workload) -> int:
    """The latency of one in this many messages is measured: of all, unless the rate is too high."""
    if workload.producer_rate is None:
        is_slow = workload.client == REFERENCE
        return 1 if is_slow else min(TOLD_EVERY_MAX, 1 + TOLD_BYTES // workload.message_size)
    producers = workload.topics * workload.producers_per_topic
    return 1 + int(workload.producer_rate / producers // TOLD_RATE_MAX)


class ProducerLoad(threading.Thread):
    """One producer on its schedule."""

    def __init__(self, producer: LoadProducer, tally: Tally, go: Told, every: int) -> None:
        super().__init__(daemon=True)
        self._producer, self._tally = producer, tally
        self._start_ns: int = go["start_ns"]
        self._rate: float | None = go["rate"]
        self._limit: int | None = go["limit"]
        self._every = every
        self._sent, self._reported = 0, (0, 0)
        self._failed_before = producer.failed
        self.stopped = threading.Event()

    def run(self) -> None:
        sleep(max(0, self._start_ns - monotonic_ns()) / NS)
        polls = threading.Thread(target=self._poll, daemon=True)
        if self._rate is not None:
            polls.start()
            self._on_schedule(Schedule(self._start_ns, self._rate))
        else:
            self._without_waiting()
        self._producer.finish(FINISH_S)
        self.stopped.set()

    def _goes_on(self) -> bool:
        return not self.stopped.is_set() and (self._limit is None or self._sent < self._limit)

    def _on_schedule(self, schedule: Schedule) -> None:
        while self._goes_on():
            due_ns = schedule.due_ns()
            wait_ns = due_ns - monotonic_ns()
            if wait_ns > 0:
                sleep(min(wait_ns / NS, NAP_S_MAX))
                continue
            if self._send(due_ns):
                schedule.take()
            else:
                sleep(0.001)

    def _without_waiting(self) -> None:
        while self._goes_on():
            for _ in range(BURST):
                if not self._goes_on():
                    break
                if not self._send(monotonic_ns()):
                    self._producer.poll(0.001)
            self._producer.poll(0)

    def _send(self, due_ns: int) -> bool:
        try:
            self._producer.send(due_ns, told=self._sent % self._every == 0)
        except QueueFull:
            return False
        self._sent += 1
        return True

    def _poll(self) -> None:
        while not self.stopped.is_set():
            self._producer.poll(POLL_S)

    def counted(self) -> None:
        """Add new acknowledgements and failures to the tally."""
        failed = self._producer.failed - self._failed_before
        acked = max(self._reported[0], self._sent - self._producer.unfinished() - failed)
        self._tally.add("acked", acked - self._reported[0])
        self._tally.add("failed", failed - self._reported[1])
        self._reported = acked, failed


class ConsumerLoad(threading.Thread):
    """One consumer: reads, commits periodically, and leaves and rejoins on request."""

    def __init__(
        self, open_one: Callable[[], LoadConsumer], workload: Workload, every: int, tally: Tally
    ) -> None:
        super().__init__(daemon=True)
        self._open, self._tally, self._every = open_one, tally, every
        commits_s = workload.commits_per_second
        self._commit_ns = int(NS / commits_s) if commits_s else 0
        self._next_commit_ns = monotonic_ns() + self._commit_ns
        self._consumer: LoadConsumer | None = None
        self.is_ready = threading.Event()
        self.leave = threading.Event()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            self._membership()

    def _membership(self) -> None:
        began_ns, is_back = monotonic_ns(), self.is_ready.is_set()
        consumer = self._open()
        has_joined = has_read = not is_back  # Only a rejoin is timed.
        self.leave.clear()
        while not (self.stopped.is_set() or self.leave.is_set()):
            taken = consumer.take(POLL_S, self._every)
            self._tally.add("received", taken.messages)
            self._tally.late("end_to_end", list(taken.stamps))
            if consumer.assigned_ns():
                self.is_ready.set()
            if not has_joined and consumer.assigned_ns():
                self._tally.late("rejoin", [began_ns], consumer.assigned_ns())
                has_joined = True
            if not has_read and taken.messages:
                self._tally.late("recovery", [began_ns])
                has_read = True
            self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: LoadConsumer) -> None:
        now_ns = monotonic_ns()
        if not self._commit_ns or now_ns < self._next_commit_ns:
            return
        self._next_commit_ns = max(self._next_commit_ns + self._commit_ns, now_ns)
        try:
            consumer.commit()
        except CommitFailed:
            self._tally.add("commits_failed", 1)
        else:
            self._tally.add("commits", 1)
            self._tally.late("commit", [now_ns])


class LoadWorker:
    """The base of all kinds: lines in, lines out."""

    def __init__(self, task: Told) -> None:
        self.workload = Workload(**task["workload"])
        self.task = task
        self.tally = Tally()
        self.is_over = threading.Event()
        self._lock = threading.Lock()

    def tell(self, **words: Any) -> None:  # noqa: ANN401
        """Write a line of JSON."""
        with self._lock:
            sys.stdout.write(json.dumps(words) + "\n")
            sys.stdout.flush()

    def report_each_second(self, count: Callable[[], None]) -> None:
        """Report each second until the end; the last report has the rest."""
        start_ns = self.task["start_ns"]
        while True:
            second = (monotonic_ns() - start_ns) // NS
            ended = self.is_over.wait((start_ns + (second + 1) * NS - monotonic_ns()) / NS)
            count()
            self.tell(**self.tally.report(second))
            if ended:
                return

    def report_in_background(self, count: Callable[[], None]) -> threading.Thread:
        """The same in a thread."""
        thread = threading.Thread(target=self.report_each_second, args=(count,), daemon=True)
        thread.start()
        return thread


def produce(worker: LoadWorker) -> None:
    """Run a producer for each named topic."""
    tally, every = worker.tally, told_every(worker.workload)

    def delivered(due_ns: int, is_good: bool) -> None:  # noqa: FBT001  (a callback)
        if is_good:
            tally.late("publish", [due_ns])

    producers = [
        producer_of(worker.task["bootstrap"], worker.workload, each, delivered)
        for each in worker.task["topics"]
    ]
    for producer in producers:
        _say_hello(producer, tally)
    sending: list[ProducerLoad] = []
    worker.tell(ready=True)
    reports = worker.report_in_background(lambda: _count(sending))
    for line in sys.stdin:
        _end(sending)
        command = json.loads(line)
        if "stop" in command:
            break
        sending[:] = [ProducerLoad(each, tally, command["go"], every) for each in producers]
        _begin(worker, sending, is_bounded=command["go"]["limit"] is not None)
    for producer in producers:
        producer.close()
    worker.is_over.set()
    reports.join()


def _begin(worker: LoadWorker, sending: list[ProducerLoad], *, is_bounded: bool) -> None:
    for each in sending:
        each.start()
    if is_bounded:
        threading.Thread(target=_await_limit, args=(worker, list(sending)), daemon=True).start()


def _say_hello(producer: LoadProducer, tally: Tally) -> None:
    """Send a message before the load: this connects, and loads the SDK's kernels."""
    producer.send(monotonic_ns(), told=False)
    producer.finish(FINISH_S)
    tally.add("acked", 1 - producer.unfinished() - producer.failed)


def _count(sending: list[ProducerLoad]) -> None:
    for each in list(sending):
        each.counted()


def _end(sending: list[ProducerLoad]) -> None:
    for each in sending:
        each.stopped.set()
    for each in sending:
        each.join()
    _count(sending)


def _await_limit(worker: LoadWorker, sending: list[ProducerLoad]) -> None:
    for each in sending:
        each.join()
    worker.tell(reached=True)


def consume(worker: LoadWorker) -> None:
    """Run a consumer for each named member (a topic and a group)."""
    bootstrap, every = worker.task["bootstrap"], told_every(worker.workload)

    def opening(topic: str, group: str) -> Callable[[], LoadConsumer]:
        return lambda: consumer_of(bootstrap, worker.workload, topic, group)

    readings = [
        ConsumerLoad(opening(*member), worker.workload, every, worker.tally)
        for member in worker.task["members"]
    ]
    for each in readings:
        each.start()
    for each in readings:
        each.is_ready.wait()
    worker.tell(ready=True)
    reports = worker.report_in_background(lambda: None)
    for turn, line in enumerate(sys.stdin):
        if "stop" in json.loads(line):
            break
        readings[turn % len(readings)].leave.set()
    for each in readings:
        each.stopped.set()
    for each in readings:
        each.join()
    worker.is_over.set()
    reports.join()


def connect(worker: LoadWorker) -> None:
    """Hold connections."""
    answered = hold(worker.task["bootstrap"], worker.task["connections"])
    next(answered)
    worker.tell(ready=True)
    reports = worker.report_in_background(lambda: None)
    asks = threading.Thread(target=_ask_on, args=(worker, answered), daemon=True)
    asks.start()
    sys.stdin.readline()
    worker.is_over.set()
    asks.join()
    reports.join()


def _ask_on(worker: LoadWorker, answered: Any) -> None:  # noqa: ANN401  (an iterator of ns)
    while not worker.is_over.is_set():
        try:
            worker.tally.late("request", [next(answered)])
        except OSError:
            worker.tally.add("connections_failed", 1)
            return


KINDS: Mapping[str, Callable[[LoadWorker], None]] = {
    "produce": produce,
    "consume": consume,
    "connect": connect,
}


def _end_with(parent: int) -> None:
    """Exit with a killed run, so no load is left behind."""
    while os.getppid() == parent:
        sleep(ORPHAN_S)
    os._exit(1)


def main() -> None:
    """Take the role in the first line of stdin, until told to stop."""
    sys.setswitchinterval(SWITCH_S)
    worker = LoadWorker(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with, args=(worker.task["run_pid"],), daemon=True).start()
    try:
        KINDS[worker.task["kind"]](worker)
    except OSError as error:
        worker.tell(error=str(error))
        return
    except Exception as error:  # noqa: BLE001  (Whatever it is, the run says it and ends.)
        worker.tell(error=f"{type(error).__name__}: {error}")
        return
    worker.tell(done=True)


if __name__ == "__main__":
    main()
