"""Runs one step of a workload against a broker: topics, workers, phases, and their counts.

backlog   producers alone, until the backlog has its size; then consumers start
warm-up   the load of the test, not counted
test      counted; with a backlog it lasts until consumers have caught up
end       producers finish, consumers read the rest, offsets say what is stored
"""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple
from uuid import uuid4

from smq.app.process.clock import monotonic_ns
from smq.app.process.program import command, importing
from smq.client.kafka.admin import create_topic, delete_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import LATEST_TIMESTAMP, find_offsets
from smq.load.clients import ceiling
from smq.load.cost import RINGS, broker_pids, cpu_seconds, killer, pss_mb
from smq.load.logins import NoWay, cluster_of, way_of, way_of_librdkafka
from smq.load.schedule import NS, RateSearch, is_kept
from smq.load.timeline import BACKLOG, END, TEST, WARM_UP, Timeline
from smq.load.workload import KAFKA, Workload
from smq.model.errors import BrokerError

Show = Callable[[dict[str, Any]], object]
READY_S_MAX = 300.0
SILENT_S_MAX = 20.0
LEAD_S = 0.3  # Gives all producers time to start simultaneously.
CAUGHT_UP_S = 0.5  # A backlog counts as drained when less traffic than this is unread.
TRIAL_S, TRIAL_WARM_UP_S = 5.0, 2.0
CEILING_S = 2.0
READERS_THREADS_MAX = 50  # Per process.


class RunEnded(Exception):
    """The run had to end; the sentence says why. `result` has the measurements until then."""

    result: dict[str, Any] | None = None


class _Process(NamedTuple):
    """A worker process and its command stream."""

    kind: str
    process: subprocess.Popen[str]

    def say(self, words: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return  # Its last lines, or its end, are in the queue.


class _Workers:
    """All worker processes, and the lines they report."""

    def __init__(self, bootstrap: str, workload: Workload, start_ns: int) -> None:
        self._common = {
            "bootstrap": bootstrap, "workload": asdict(workload), "start_ns": start_ns,
            "run_pid": os.getpid(),
        }  # fmt: skip
        self.timeline = Timeline()
        self._lines: queue.Queue[tuple[_Process, str]] = queue.Queue()
        self._all: list[_Process] = []
        self._seen = {"ready": 0, "reached": 0, "done": 0}

    def start(self, kind: str, **task: Any) -> None:  # noqa: ANN401
        """Start one process."""
        process = subprocess.Popen(  # noqa: S603  (ourselves)
            command("smq.load.worker"), env=importing(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        worker = _Process(kind, process)
        self._all.append(worker)
        worker.say({**self._common, "kind": kind, **task})
        threading.Thread(target=self._read, args=(worker,), daemon=True).start()

    def _read(self, worker: _Process) -> None:
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            self._lines.put((worker, line))
        self._lines.put((worker, ""))

    def of(self, kind: str) -> list[_Process]:
        """The workers of a kind."""
        return [each for each in self._all if each.kind == kind]

    def command(self, kind: str, words: dict[str, Any]) -> None:
        """Send a command to all workers of a kind."""
        for each in self.of(kind):
            each.say(words)

    def seen(self, word: str) -> int:
        """How many workers have reported it."""
        return self._seen[word]

    def hear(self, seconds: float) -> None:
        """Process reports for this long. Raises RunEnded if a worker failed."""
        end_ns = monotonic_ns() + int(seconds * NS)
        while (left_ns := end_ns - monotonic_ns()) > 0:
            try:
                worker, line = self._lines.get(timeout=left_ns / NS)
            except queue.Empty:
                return
            self._take(worker, line)

    def _take(self, worker: _Process, line: str) -> None:
        if not line:
            if worker.process.wait() != 0:
                raise RunEnded(f"a process of the load ended with {worker.process.returncode}")
            return
        told = json.loads(line)
        if "error" in told:
            raise RunEnded(told["error"])
        if "second" in told:
            self.timeline.add(told)
        for word in self._seen.keys() & told.keys():
            self._seen[word] += 1

    def until(self, is_so: Callable[[], bool], what: str, seconds: float) -> None:
        """Process reports until a condition holds. Raises RunEnded on timeout."""
        end_ns = monotonic_ns() + int(seconds * NS)
        while not is_so():
            if monotonic_ns() > end_ns:
                raise RunEnded(f"{what} within {seconds:g} s")
            self.hear(0.05)

    def end(self) -> None:
        """Kill them all."""
        for each in self._all:
            each.process.kill()
        for each in self._all:
            each.process.wait()
            for stream in (each.process.stdin, each.process.stdout):
                assert stream is not None
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


class StepRun:
    """A running step."""

    def __init__(self, bootstrap: str, workload: Workload, show: Show, processes: int = 0) -> None:
        self._bootstrap, self._workload, self._show = bootstrap, workload, show
        self._processes = processes or max(1, (os.cpu_count() or 2) // 2)
        self._topics: list[str] = []
        self._pids: list[int] = []
        self._start_ns = monotonic_ns()
        self._workers = _Workers(bootstrap, workload, self._start_ns)
        self._phases: list[tuple[str, int]] = []
        self._shown = 0
        self._moved: tuple[int, int] = (0, monotonic_ns())
        self._kill = killer(bootstrap) if workload.kill_every_seconds else None
        self._next_kill_ns = self._next_leave_ns = 0
        self._events: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}

    def result(self) -> dict[str, Any]:
        """Run the step; returns its result. Raises RunEnded, BrokerError."""
        workload = self._workload
        if workload.kill_every_seconds and self._kill is None:
            raise RunEnded("killEverySeconds needs an SMQ of this user on this host")
        self._facts["client"] = self._client_facts()
        try:
            with ExitStack() as stack:
                cluster = stack.enter_context(cluster_of(self._bootstrap))
                stack.enter_context(self._made_topics(cluster))
                stack.callback(self._workers.end)
                with self._costs():
                    self._phases_of_load()
                    self._finish(cluster)
        except RunEnded as error:
            error.result = self._outcome() | {"ended": str(error)}
            raise
        return self._outcome()

    def _client_facts(self) -> dict[str, Any]:
        if self._workload.client != KAFKA:
            return {"name": f"SMQ's SDK ({self._workload.client})"}
        import confluent_kafka  # noqa: PLC0415  (an extra)

        return {
            "name": f"librdkafka {confluent_kafka.libversion()[0]}",
            "ceiling_of_one_producer": ceiling(
                self._workload, min(CEILING_S, self._workload.test_seconds)
            ),
        }

    @contextmanager
    def _made_topics(self, cluster: Cluster) -> Iterator[None]:
        workload, prefix = self._workload, f"bench-{uuid4().hex[:8]}"
        try:
            for number in range(workload.topics):
                name = f"{prefix}-{number}"
                create_topic(cluster, name, workload.partitions_per_topic, workload.topic_config)
                self._topics.append(name)
            yield
        finally:
            for name in self._topics:
                try:
                    delete_topic(cluster, name)
                except BrokerError:  # The broker is gone; the run has reported it.
                    break

    @contextmanager
    def _costs(self) -> Iterator[None]:
        self._pids = pids = broker_pids(self._bootstrap)
        cpu, memory = cpu_seconds(pids), pss_mb(pids, without=RINGS)
        try:
            yield
        finally:
            if pids:
                self._facts["cost"] = {
                    "cpu_seconds": round(cpu_seconds(pids) - cpu, 2),
                    "memory_mb_before": round(memory, 1),
                    "memory_mb": self._facts.pop("memory_mb", 0.0),
                }

    def _phases_of_load(self) -> None:
        workload = self._workload
        self._start_producers()
        if workload.backlog_messages:
            self._build_backlog()
            self._start_consumers()
        else:
            self._start_consumers()
            self._go(workload.producer_rate, None)
        if workload.warmup_seconds:
            self._phase(WARM_UP)
            self._drive(workload.warmup_seconds)
        self._phase(TEST)
        self._drive(max(1.0, workload.test_seconds))
        if workload.backlog_messages:
            self._drain()
        self._phase(END)
        self._facts["memory_mb"] = round(pss_mb(self._pids, without=RINGS), 1)

    def _start_producers(self) -> None:
        workload = self._workload
        topics = self._topics * workload.producers_per_topic
        count = min(self._processes, len(topics))
        for number in range(count):
            self._workers.start("produce", topics=topics[number::count])
        if workload.idle_connections:
            self._workers.start("connect", connections=workload.idle_connections)
        self._await_ready()

    def _start_consumers(self) -> None:
        """Start consumers and await their partitions; with a backlog, they read at once."""
        workload = self._workload
        members = [
            (topic, f"{topic}-{group}")
            for topic in self._topics
            for group in range(workload.subscriptions_per_topic)
            for _ in range(workload.consumer_per_subscription)
        ]
        most = -(-len(members) // READERS_THREADS_MAX)
        count = min(len(members), max(self._processes, most))
        for number in range(count):  # All members of a group start together, so they join together.
            first, end = number * len(members) // count, (number + 1) * len(members) // count
            self._workers.start("consume", members=members[first:end])
        if workload.backlog_messages:
            self._go(workload.producer_rate, None)
            return
        self._await_ready()

    def _await_ready(self) -> None:
        kinds = ("produce", "consume", "connect")
        wanted = sum(len(self._workers.of(kind)) for kind in kinds)
        self._workers.until(
            lambda: self._workers.seen("ready") == wanted,
            "producers and consumers have not become ready", READY_S_MAX,
        )  # fmt: skip

    def _go(self, rate: float | None, messages: int | None) -> None:
        producers = len(self._topics) * self._workload.producers_per_topic
        each = None if rate is None else rate / producers
        limit = None if messages is None else -(-messages // producers)
        start_ns = monotonic_ns() + int(LEAD_S * NS)
        self._workers.command("produce", {
            "go": {"rate": each, "limit": limit, "start_ns": start_ns}
        })  # fmt: skip
        self._moved = (self._progress(), monotonic_ns())

    def _build_backlog(self) -> None:
        workload, workers = self._workload, self._workers
        self._phase(BACKLOG)
        began_ns = monotonic_ns()
        self._go(workload.backlog_producer_rate, workload.backlog_messages)
        while workers.seen("reached") < len(workers.of("produce")):
            self._drive(0.1)
        seconds = (monotonic_ns() - began_ns) / NS - LEAD_S
        self._facts["backlog"] = {
            "bytes": workload.backlog_messages * workload.message_size,
            "built_seconds": round(seconds, 2),
        }

    def _drain(self) -> None:
        """Continue until each subscription is within a moment of what is acknowledged."""
        totals, rate = self._workers.timeline.totals, self._workload.producer_rate
        groups = self._workload.subscriptions_per_topic
        began_ns = self._start_ns + self._phases[-1][1] * NS
        slack = (rate or 0) * CAUGHT_UP_S
        while totals["received"] < (totals["acked"] - slack) * groups:
            self._drive(0.1)
            if rate is None:
                break  # No consumer catches up with an unlimited producer.
        self._facts["backlog"]["drained_seconds"] = round((monotonic_ns() - began_ns) / NS, 2)

    def _phase(self, name: str) -> None:
        """Begin a phase with the next second; the end of the load drops the second in progress."""
        passed_ns = monotonic_ns() - self._start_ns
        if name == END:
            self._phases.append((name, passed_ns // NS))
            return
        second = -(-passed_ns // NS)
        self._drive((second * NS - passed_ns) / NS)
        self._phases.append((name, second))

    def _drive(self, seconds: float) -> None:
        """Let the load run, and disturb it if the workload says so."""
        end_ns = monotonic_ns() + int(seconds * NS)
        while (now_ns := monotonic_ns()) < end_ns:
            self._workers.hear(min(0.1, (end_ns - now_ns) / NS))
            self._show_seconds()
            self._check_moves()
            self._disturb()

    def _progress(self) -> int:
        totals = self._workers.timeline.totals
        return totals["acked"] + totals["received"]

    def _check_moves(self) -> None:
        count, since_ns = self._moved
        if self._progress() != count:
            self._moved = (self._progress(), monotonic_ns())
        elif monotonic_ns() - since_ns > SILENT_S_MAX * NS:
            raise RunEnded(
                f"the broker at {self._bootstrap} has answered no producer and no consumer for "
                f"{SILENT_S_MAX:g} s"
            )

    def _disturb(self) -> None:
        workload, now_ns = self._workload, monotonic_ns()
        if not self._phases or self._phases[-1][0] not in {WARM_UP, TEST}:
            return
        if self._kill is not None and now_ns >= self._next_kill_ns:
            if self._next_kill_ns:
                self._event(f"killed {self._kill()}")
            self._next_kill_ns = now_ns + int(workload.kill_every_seconds * NS)
        if workload.rebalance_every_seconds and now_ns >= self._next_leave_ns:
            if self._next_leave_ns:
                readers = self._workers.of("consume")
                readers[len(self._events) % len(readers)].say({"leave": True})
                self._event("a consumer left and came back")
            self._next_leave_ns = now_ns + int(workload.rebalance_every_seconds * NS)

    def _event(self, what: str) -> None:
        second = round((monotonic_ns() - self._start_ns) / NS, 1)
        self._events.append({"second": second, "what": what})

    def _show_seconds(self) -> None:
        """Show each complete second: all workers report it within a second."""
        last = (monotonic_ns() - self._start_ns) // NS - 1
        while self._shown < last:
            row = self._workers.timeline.row(self._shown, self._phase_of(self._shown))
            self._show(row | {"message_size": self._workload.message_size})
            self._shown += 1

    def _phase_of(self, second: int) -> str:
        return next((name for name, start in reversed(self._phases) if second >= start), "start")

    def _finish(self, cluster: Cluster) -> None:
        workers, totals = self._workers, self._workers.timeline.totals
        workers.command("produce", {"stop": True})
        workers.until(
            lambda: workers.seen("done") == len(workers.of("produce")),
            "producers have not finished", 90,
        )  # fmt: skip
        stored = sum(self._stored(cluster, topic) for topic in self._topics)
        wanted = stored * self._workload.subscriptions_per_topic
        last_ns, last = monotonic_ns(), totals["received"]
        while totals["received"] < wanted and monotonic_ns() - last_ns < SILENT_S_MAX * NS:
            workers.hear(0.1)
            if totals["received"] != last:
                last_ns, last = monotonic_ns(), totals["received"]
        self._facts["check"] = {
            "acknowledged": totals["acked"],
            "failed": totals["failed"],
            "stored": stored,
            "expected_by_consumers": wanted,
            "received": totals["received"],
        }
        for kind in ("consume", "connect"):
            workers.command(kind, {"stop": True})

    def _stored(self, cluster: Cluster, topic: str) -> int:
        partitions = list(range(self._workload.partitions_per_topic))

        def ask() -> int:
            ends = find_offsets(cluster, topic, partitions, LATEST_TIMESTAMP)
            return sum(ends.values())  # The first record has offset 0.

        return cluster.retrying(ask)

    def _outcome(self) -> dict[str, Any]:
        timeline, workload = self._workers.timeline, self._workload
        starts = dict(self._phases)
        last = (monotonic_ns() - self._start_ns) // NS
        end = starts.get(END, last)
        test = range(starts.get(TEST, end), end)
        counts, seconds = timeline.counts(test), max(1, len(test))
        groups = max(1, workload.subscriptions_per_topic)
        per_s = {name: counts[name] / seconds for name in ("acked", "received", "failed")}
        return {
            "parameters": asdict(workload),
            "seconds_measured": len(test),
            "rates": {
                "acked_msg_s": round(per_s["acked"], 1),
                "acked_mb_s": round(per_s["acked"] * workload.message_size / 1e6, 3),
                "received_msg_s": round(per_s["received"], 1),
                "received_mb_s": round(per_s["received"] * workload.message_size / 1e6, 3),
                "received_msg_s_of_a_group": round(per_s["received"] / groups, 1),
                "failed_msg_s": round(per_s["failed"], 1),
            },
            "latency_us": timeline.latencies(test),
            "seconds": [timeline.row(each, self._phase_of(each)) for each in range(end)],
            "events": self._events,
            **self._facts,
        }


def run_step(bootstrap: str, workload: Workload, show: Show, processes: int = 0) -> dict[str, Any]:
    """Run a step; for rate 0, first search the rate. Raises RunEnded, BrokerError."""
    try:
        (way_of_librdkafka if workload.client == KAFKA else way_of)(bootstrap)
    except NoWay as reason:
        raise RunEnded(str(reason)) from reason
    if not workload.searches:
        return StepRun(bootstrap, workload, show, processes).result()
    trials = []

    def trial(rate: float | None) -> dict[str, Any]:
        short = workload.trial(rate, TRIAL_S, TRIAL_WARM_UP_S)
        return StepRun(bootstrap, short, show, processes).result()["rates"]  # type: ignore[no-any-return]

    highest = trial(None)["acked_msg_s"]
    search = RateSearch(highest)
    while (rate := search.next_rate()) is not None:
        rates = trial(rate)
        read = rates["received_msg_s_of_a_group"] if workload.subscriptions_per_topic else None
        kept = is_kept(rate, rates["acked_msg_s"], read)
        search.tell(rate, kept=kept)
        trials.append({"rate": rate, "kept": kept, **rates})
    if not search.found:
        raise RunEnded("no rate is sustainable: consumers keep up with none")
    result = StepRun(bootstrap, workload.at_rate(search.found), show, processes).result()
    found = {"highest_closed_loop": highest, "trials": trials, "sustainable_rate": search.found}
    return result | {"search": found}
