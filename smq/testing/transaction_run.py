"""Transactions under kills: does any reader see aborted records, part of a transaction, or a
duplicate?

`python -m smq.testing.transaction_run --transactions 20000 --kills 40 --seed …`.

Programs copy numbered records from `source` to `middle` and from there to `target`, some with
librdkafka and some with SMQ's SDK, each transaction to several partitions and with its group's
offsets; some are aborted on purpose, some left open. At random moments a process of the broker or
one of the programs gets SIGKILL. What they copy has left the page cache, which keeps little.
Readers of committed records of both clients read meanwhile; at
the end two more read everything from the start. The checker (smq.testing.transactions.checker)
looks for Jepsen's anomalies in the attempts and the reads.

The seed decides which process is killed and what is aborted; the machine's timing decides what that
interrupts.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from smq.app.process.clock import monotonic_ms
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing.kill_run import SEAL_MS, SHARDS, USUAL, VICTIMS, Say, Wrong
from smq.testing.page_cache import await_dropped
from smq.testing.smq_broker import SmqBroker
from smq.testing.transactions.checker import anomalies
from smq.testing.transactions.copier import MIDDLE, SOURCE, SPREAD, TARGET, Task, command
from smq.testing.transactions.history import Fate, History
from smq.testing.transactions.reader import ConfluentReader, SmqReader, read_all, reading_along
from smq.testing.transactions.standing import standing

SOURCES = 2
# A program for each partition of the source and each stage; both clients in both stages.
PROGRAMS = tuple(
    (("confluent", "smq")[(stage + partition) % 2], stage, partition)
    for stage in range(2)
    for partition in range(SOURCES)
)
RECORDS_A_TRANSACTION = 3  # Two stages copy each, four or five at a time: there are enough.
# What the programs copy lies before it: in neither ring nor page cache.
PADDING, PADDING_BYTES, PADDING_RECORDS = "padding", 100_000, 600
QUIET_MS_MAX = 120_000  # Longer without any progress is a hang.
ANOMALIES_SAID = 20


class Programs:
    """The copying programs, each started again after its death.

    hung   how often librdkafka hung and a program ended itself (see the copier)
    """

    def __init__(self, bootstrap: str, directory: Path, seed: int) -> None:
        self._bootstrap, self._directory, self._seed = bootstrap, directory, seed
        self._running: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}
        self.tasks: list[Task] = []
        self.hung = 0
        for number in range(len(PROGRAMS)):
            self.start(number)

    def start(self, number: int) -> None:
        """Begin another life of a program."""
        client, stage, partition = PROGRAMS[number]
        life = sum(task.program == number for task in self.tasks)
        notes = self._directory / f"notes-{number}-{life}"
        task = Task(number, life, client, stage, partition, str(notes), self._seed)
        self.tasks.append(task)
        with (self._directory / f"output-{number}").open("ab") as output:
            arguments = command(self._bootstrap, task)
            process = subprocess.Popen(arguments, stdout=output, stderr=output)  # noqa: S603
        self._running[number] = task, process

    def pid(self, number: int) -> int:
        """The process of a program's last life."""
        return self._running[number][1].pid

    def kill(self, number: int) -> None:
        """`kill -9`."""
        _, process = self._running.pop(number)
        process.kill()
        process.wait()

    def check(self) -> None:
        """Restart programs that hung. Raises Wrong if one ended by itself for another reason."""
        for number, (_, process) in list(self._running.items()):
            if process.poll() == -signal.SIGALRM:
                self.hung += 1
                self.start(number)
            elif process.returncode is not None:
                said = (self._directory / f"output-{number}").read_text()[-2000:]
                raise Wrong(f"program {number} ended with {process.returncode}:\n{said}")

    def close(self) -> None:
        """Kill all."""
        for number in list(self._running):
            self.kill(number)

    def history(self, items: int) -> History:
        """The history of their notes."""
        history = History(sources=dict.fromkeys(range(SOURCES), items))
        for task in self.tasks:
            notes = Path(task.notes)
            lines = notes.read_text().splitlines() if notes.exists() else []
            history.add_lines(task.program, task.life, task.topics[1], lines)
        return history


def transaction_run(
    directory: Path, seed: int, transactions: int, kills: int, say: Say
) -> Counter[Fate]:
    """One run; returns counts of transactions by outcome. Raises Wrong."""
    chance = random.Random(seed)  # noqa: S311  (no secret)
    items = transactions * RECORDS_A_TRANSACTION // SOURCES
    settings = {"seal.ms": str(SEAL_MS), **USUAL, "shards": str(SHARDS)}
    with ExitStack() as stack:
        broker = stack.enter_context(SmqBroker(directory, settings))
        _fill(broker, items)
        programs = Programs(broker.bootstrap, directory, seed)
        stack.callback(programs.close)
        along = ConfluentReader(broker.bootstrap, TARGET), SmqReader(broker.bootstrap, MIDDLE)
        with reading_along(along) as check:
            progress = _Progress(lambda: len(along[0].seen), SOURCES * items, programs.check, check)
            try:
                for number in range(kills):
                    progress.wait_for(progress.goal * number // kills)
                    Event().wait(chance.uniform(0, 0.3))
                    victim = chance.choice((*VICTIMS, *map(str, range(len(PROGRAMS)))))
                    _kill(victim, broker, programs)
                    say(f"kill {number + 1} of {kills}: {victim}; {len(along[0].seen):,} copied")
                progress.wait_for(progress.goal)
            except Wrong as reason:
                where = "\n".join(standing(broker.bootstrap, programs.tasks))
                raise Wrong(f"{reason}\n{where}") from reason
        programs.close()
        say(f"everything is copied (librdkafka hung {programs.hung} times); now all is read again")
        history = programs.history(items)
        for reader in along:
            history.reads[f"{reader.name}, along"] = reader.seen
            reader.close()
        for kind in (ConfluentReader, SmqReader):
            again = kind(broker.bootstrap, MIDDLE, TARGET)
            read_all(again, QUIET_MS_MAX)
            again.close()
            history.reads[f"{again.name}, again"] = again.seen
            history.whole.append(f"{again.name}, again")
        say(f"{await_dropped(broker.data_dir)} segments were dropped from the page cache")
    return _judged(history, kills, say)


def _fill(broker: SmqBroker, items: int) -> None:
    with Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, SOURCE, SOURCES)
        create_topic(cluster, PADDING, 2 * SHARDS)
        for topic in (MIDDLE, TARGET):
            create_topic(cluster, topic, SOURCES * SPREAD)
    with broker.connect() as client, client.producer() as producer:
        for number in range(items):
            for partition in range(SOURCES):
                producer.send(SOURCE, number.to_bytes(4), partition=partition)
        for number in range(PADDING_RECORDS):
            producer.send(PADDING, bytes(PADDING_BYTES), partition=number % (2 * SHARDS))


def _kill(victim: str, broker: SmqBroker, programs: Programs) -> None:
    if victim.isdigit():
        programs.kill(int(victim))
        programs.start(int(victim))
    else:
        broker.kill(victim)
        broker.restart()


class _Progress:
    """Waits for a number to rise. Raises Wrong if it stalls."""

    def __init__(self, number: Callable[[], int], goal: int, *checks: Callable[[], None]) -> None:
        self._number, self.goal, self._checks = number, goal, checks

    def wait_for(self, wanted: int) -> None:
        """Until the number has reached it."""
        last, since_ms = self._number(), monotonic_ms()
        while last < wanted:
            for check in self._checks:
                check()
            Event().wait(0.02)
            if self._number() > last:
                last, since_ms = self._number(), monotonic_ms()
            if monotonic_ms() - since_ms > QUIET_MS_MAX:
                raise Wrong(f"no progress behind {last:,} of {self.goal:,} records")


def _judged(history: History, kills: int, say: Say) -> Counter[Fate]:
    found = anomalies(history)
    fates = Counter(each.fate for each in history.tried.values())
    told = ", ".join(f"{fates[fate]:,} {fate}" for fate in Fate)
    if found:
        kinds = Counter(each.kind for each in found)
        words = "\n".join(f"{each.kind}: {each.words}" for each in found[:ANOMALIES_SAID])
        raise Wrong(f"{told}; anomalies: {dict(kinds)}\n{words}")
    say(f"{fates.total():,} transactions ({told}), {kills} kills: 0 anomalies")
    return fates


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--transactions", type=int, default=20_000)
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    began_ms = monotonic_ms()

    def say(line: str) -> None:
        sys.stdout.write(f"{(monotonic_ms() - began_ms) / 1000:6.1f} s  {line}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="smq-") as directory:
        transaction_run(Path(directory), given.seed, given.transactions, given.kills, say)


if __name__ == "__main__":
    main()
