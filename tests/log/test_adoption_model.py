"""Appends, moves and starts of two logs, in any order, against a plain model of one partition."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings as test_settings, strategies as st

from shm.kernels.base.words import P_LED_FROM, P_LOG_END
from smq.log.files.adopted import AdoptionPart
from smq.log.log import Log
from tests.log.logs import OS, append, batch, read, row, settings, start, turn
from tests.log.test_adoption import pages_of, save

P = 1
WORDS = "append repeat prepare cancel commit move save-0 save-1 start-0 start-1"
STEPS = st.lists(st.sampled_from(WORDS.split()), min_size=12, max_size=40)


class Model:
    """Two logs, and what the catalog and a client know.

    leaderships   (epoch, log, start), as the catalog has them
    values        of each offset that was appended
    sequence      the next one of the only producer
    """

    def __init__(self, directory: Path) -> None:
        self.directories = [directory / "0", directory / "1"]
        self.counter = 0
        self.logs: list[Log] = []
        for each in self.directories:
            each.mkdir()
            self.logs.append(self._open(each))
        self.leaderships = [(0, 0, 0)]
        self.values: dict[int, bytes] = {}
        self.attempt = self.sequence = 0
        self.prepared: int | None = None  # The epoch in which the other log may lead.
        self._take(0)

    @property
    def leader(self) -> int:
        return self.leaderships[-1][1]

    def _open(self, directory: Path) -> Log:
        self.counter += 1
        return start(directory, generation=self.counter, levels={}).log

    def _take(self, i: int) -> None:
        """A shard takes the catalog."""
        log, (epoch, leads, begin) = self.logs[i], self.leaderships[-1]
        log.configure(P, settings(OS))
        if i != leads:
            ends = [
                b[2]
                for a, b in zip(self.leaderships, self.leaderships[1:], strict=False)
                if a[1] == i
            ]
            if ends:
                log.become_tail(P, ends[-1])
        elif self.prepared is None:
            log.lead(P, epoch, begin)
        else:
            log.close_partition(P, epoch, begin)
        self._check(i)

    def step(self, what: str) -> None:
        name, _, which = what.partition("-")
        if which:
            {"save": self._save, "start": self._start}[name](int(which))
        else:
            {
                "append": self._append, "repeat": self._repeat, "prepare": self._prepare,
                "cancel": self._cancel, "commit": self._commit, "move": self._move,
            }[name]()  # fmt: skip
        for i in (0, 1):
            self._check(i)

    def _produce(self, sequence: int) -> int:
        log = self.logs[self.leader]
        value = b"%d" % sequence
        offset = append(log, P, batch(value, producer_id=7, epoch=0, sequence=sequence))
        assert turn(log)
        return offset

    def _append(self) -> None:
        if self.prepared is None:
            offset = self._produce(self.sequence)
            assert offset == self.sequence
            self.values[offset] = b"%d" % self.sequence
            self.sequence += 1

    def _repeat(self) -> None:
        if self.prepared is None and self.sequence:
            assert self._produce(self.sequence - 1) == self.sequence - 1

    def _prepare(self) -> None:
        source, target = self.logs[self.leader], self.logs[1 - self.leader]
        source.close_partition(P)
        self.attempt, self.counter = self.attempt + 1, self.counter + 1
        self.prepared = self.counter
        pages = pages_of(source)
        for i, page in enumerate(pages):
            part = AdoptionPart(P, self.prepared, self.attempt, self.sequence, i, len(pages))
            while not target.adoptions.write(part, page):
                assert turn(target)
            assert turn(target)

    def _cancel(self) -> None:
        if self.prepared is not None:
            self.prepared = None
            self.logs[self.leader].lead(P, self.leaderships[-1][0], self.leaderships[-1][2])

    def _commit(self) -> None:
        if self.prepared is not None:
            self.leaderships.append((self.prepared, 1 - self.leader, self.sequence))
            self.prepared = None
            for i in (0, 1):
                self._take(i)

    def _move(self) -> None:
        self._prepare()
        self._commit()

    def _save(self, i: int) -> None:
        save(self.logs[i])

    def _start(self, i: int) -> None:
        self.logs[i].wal.close()
        self.logs[i] = self._open(self.directories[i])
        self._take(i)

    def _check(self, i: int) -> None:
        log = self.logs[i]
        log.invariants()
        if P not in log.partitions.slots:
            return
        if i == self.leader:
            assert int(row(log)[P_LOG_END]) == self.sequence
            assert int(row(log)[P_LED_FROM]) == self.leaderships[-1][2]
            assert log.partitions.epochs[P][0][1] == self.leaderships[-1][2]
        ends = [each[2] for each in self.leaderships[1:]] + [self.sequence]
        for (_, of, begin), end in zip(self.leaderships, ends, strict=True):
            if of == i:
                mine = {k: v for k, v in read(log, P, begin).items() if k < end}
                wanted = {k: v for k, v in self.values.items() if begin <= k < end}
                assert mine == wanted


@test_settings(max_examples=60, deadline=None)
@given(STEPS)
def test_records_are_read_where_they_were_led_through_all_moves_and_starts(
    steps: list[str],
) -> None:
    with TemporaryDirectory() as directory:
        model = Model(Path(directory))
        for each in steps:
            model.step(each)
