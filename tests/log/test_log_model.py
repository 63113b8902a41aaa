"""A log driven at random beside a plain model of it: appended, acked, sealed, crashed, read."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from smq.testing.disk import Past, TracingDisk, killed, write_image
from tests.log.logs import (
    BOOT,
    DISK,
    MEMORY,
    OS,
    OTHER_BOOT,
    append,
    batch,
    high_watermark,
    memory_of,
    read,
    start,
    turn,
)

LEVELS = {1: MEMORY, 2: OS, 3: DISK}
numbers = st.sampled_from(sorted(LEVELS))


class LogMachine(RuleBasedStateMachine):
    """The model: a list of values for each partition, and how far it is visible and sealed."""

    @initialize()
    def begin(self) -> None:
        self.path = Path(tempfile.mkdtemp())
        self.memory, self.generation, self.boot = memory_of(), 0, BOOT
        self.values: dict[int, list[bytes]] = {number: [] for number in LEVELS}
        self.visible = dict.fromkeys(LEVELS, 0)
        self.sealed = dict.fromkeys(LEVELS, 0)
        self.open()

    def open(self) -> None:
        self.disk = TracingDisk(self.path)
        self.log, recovered = start(
            self.path,
            generation=self.generation,
            boot=self.boot,
            memory=self.memory,
            disk=self.disk,
            levels=LEVELS,
        )
        assert recovered.damaged == []
        self.generation += 1

    @rule(number=numbers, size=st.sampled_from([1, 100, 800]), count=st.integers(1, 8))
    def append(self, number: int, size: int, count: int) -> None:
        for _ in range(count):
            mine = self.values[number]
            value = b"%d:%d:%d " % (number, len(mine), self.generation) * (size // 10 + 1)
            assert append(self.log, number, batch(value)) == len(mine)
            mine.append(value)

    @rule(syncs=st.booleans())
    def turn(self, syncs: bool) -> None:
        assert turn(self.log, syncs=syncs)
        for number, level in LEVELS.items():
            if level < DISK or syncs:
                assert high_watermark(self.log, number) == len(self.values[number])

    @rule(number=numbers, part=st.floats(0, 1))
    def seal(self, number: int, part: float) -> None:
        low, high = self.sealed[number], high_watermark(self.log, number)
        self.sealed[number] = low + int(part * (high - low))
        self.log.sealing.advance(number, self.sealed[number], now_ms=1)
        self.log.checkpoint()

    @rule()
    def a_shard_dies(self) -> None:
        """The supervisor kept the memory: nothing that was appended is lost."""
        self.log.wal.close()
        self.open()
        for number in LEVELS:
            assert high_watermark(self.log, number) == len(self.values[number])

    @rule(is_clean=st.booleans(), boots=st.booleans())
    def everything_dies(self, is_clean: bool, boots: bool) -> None:
        """The WAL has what was written; of the rest the offsets are given again, in a new epoch."""
        if is_clean:
            self.log.close()
        else:
            write_image(killed(Past(self.disk.image, self.disk.trace)), self.path)
            self.log.wal.close()
        if boots and is_clean and self.boot == BOOT:
            self.boot = OTHER_BOOT
        self.memory = memory_of()
        before = dict(self.visible)
        self.open()
        for number, level in LEVELS.items():
            end = high_watermark(self.log, number)
            assert end >= (0 if level == MEMORY and not is_clean else before[number])
            assert end == len(self.values[number]) or not is_clean
            self.values[number] = self.values[number][:end]

    @rule(number=numbers)
    def read(self, number: int) -> None:
        low, high = self.sealed[number], high_watermark(self.log, number)
        found = read(self.log, number, low)
        assert found == {i: self.values[number][i] for i in range(low, high)}

    @invariant()
    def holds(self) -> None:
        self.log.invariants()
        for number in LEVELS:
            self.visible[number] = high_watermark(self.log, number)
            assert self.visible[number] <= len(self.values[number])

    def teardown(self) -> None:
        if hasattr(self, "path"):
            self.log.wal.close()
            shutil.rmtree(self.path)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
