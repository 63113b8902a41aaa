"""A traced log, crashed at every step: it holds what its levels promise, and nothing else.

Every prefix of a trace is a crash. A kill leaves what was written, its last write torn; a power
loss any subset of what was not synced: all of them are tried where few writes were pending, drawn
ones everywhere, down to pages and sectors. The log that starts then lives on, and crashes again.
"""

import errno
import os
from collections import deque
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from shm.kernels.base.words import P_LOG_END
from smq.log.files.checkpoint import FILE_NAME
from smq.testing.disk import (
    Image,
    Past,
    TracingDisk,
    killed,
    power_losses,
    power_lost,
    torn,
    write_image,
)
from tests.log.logs import (
    BOOT,
    DISK,
    MEMORY,
    OS,
    OTHER_BOOT,
    RING_BYTES,
    SEGMENT_BYTES,
    append,
    batch,
    high_watermark,
    memory_of,
    read,
    start,
    turn,
)

LEVELS = {1: MEMORY, 2: OS, 3: DISK, 4: OS}
WORLDS = 8
REFUSED = (FILE_NAME, ".index")
UNSYNCED_MAX = 6  # Writes of which all subsets are tried: their number doubles with each.


class Ack(NamedTuple):
    """After so many steps of the trace everything of a partition below `end` was visible."""

    step: int
    number: int
    end: int


class FullDisk(TracingDisk):
    """A traced disk that has no space for files whose names end so."""

    def __init__(self, directory: Path, past: Past | None, refused: tuple[str, ...]) -> None:
        super().__init__(directory, past)
        self._refused = refused

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk."""
        if path.name.endswith(self._refused):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace(path, data)


class Story:
    """One life of a log on a traced disk, and what it told the world.

    Each partition has one idempotent producer, whose sequences are its offsets. Of what a crash
    takes beyond a level it may be forgotten: `exact` are the levels where that has not happened.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (what a life begins with)
        self,
        directory: Path,
        generation: int,
        boot: bytes,
        segment_bytes: int,
        past: Past | None,
        refused: tuple[str, ...] = (),
    ) -> None:
        self.exact = {OS, DISK}
        self.disk = FullDisk(directory, past, refused)
        self.log, self.recovered = start(
            directory,
            generation=generation,
            boot=boot,
            disk=self.disk,
            memory=memory_of(RING_BYTES, segment_bytes),
            segment_bytes=segment_bytes,
            levels=LEVELS,
        )
        self.content = {
            (number, offset): value
            for number in LEVELS
            for offset, value in read(self.log, number, self.sealed_end(number)).items()
        }
        self.found = dict(self.content)
        self.acks: list[Ack] = []
        self._acknowledge()

    def live(self, chance: Random, turns: int) -> "Story":
        generation = self.log.freeing.snapshot().generation
        self._send_again()
        for _ in range(turns):
            for _ in range(chance.randint(1, 4)):
                number = chance.choice(list(LEVELS))
                values = [chance.randbytes(chance.choice([1, 80, 700])) for _ in range(2)]
                end = self.log_end(number)
                base = append(self.log, number, produced(number, end, *values))
                assert base == end
                self.content[number, base], self.content[number, base + 1] = values
            # No producer has more than five batches on their way: so many are remembered.
            is_due = self.log_end(3) - high_watermark(self.log, 3) > 2
            assert turn(self.log, syncs=is_due or chance.random() < 0.5)
            self._acknowledge()
            self._seal(chance)
        assert self.log.freeing.snapshot().generation == generation
        return self

    def _send_again(self) -> None:
        """What was appended last, as a producer does that was not told of it."""
        for number, level in LEVELS.items():
            if level in self.exact and (end := self.log_end(number)) > 0:
                assert append(self.log, number, produced(number, end - 2, b"x", b"y")) == end - 2
                assert self.log_end(number) == end

    def log_end(self, number: int) -> int:
        return int(self.log.partitions.table[self.log.partitions.slots[number], P_LOG_END])

    def _seal(self, chance: Random) -> None:
        if chance.random() < 0.2:
            number = chance.choice(list(LEVELS))
            self.log.sealing.advance(number, high_watermark(self.log, number), now_ms=1)
            self.log.checkpoint()

    def _acknowledge(self) -> None:
        self.acks += [Ack(len(self.disk.trace), n, high_watermark(self.log, n)) for n in LEVELS]

    def promised(self, steps: int, levels: set[int]) -> dict[int, int]:
        """What a crash after so many steps must leave of the partitions of these levels."""
        return {
            number: max(
                (a.end for a in self.acks if a.step <= steps and a.number == number), default=0
            )
            for number, level in LEVELS.items()
            if level in levels
        }

    def sealed_end(self, number: int) -> int:
        return next(s.sealed_end for s in self.log.partitions.states() if s.number == number)


def produced(number: int, sequence: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=number, epoch=0, sequence=sequence)


def check(before: Story, after: Story, steps: int, levels: set[int]) -> None:
    """After the crash of `before`, `after` has found what was promised and nothing of its own."""
    assert after.recovered.damaged == []
    for number, end in before.promised(steps, levels).items():
        assert high_watermark(after.log, number) >= end
        missing = [
            offset
            for offset in range(after.sealed_end(number), end)
            if after.found.get((number, offset)) != before.content[number, offset]
        ]
        assert not missing, f"partition {number} lost {missing}"
    for (number, offset), value in after.found.items():
        assert before.content.get((number, offset)) == value, f"{number}: {offset} is foreign"
    for number in LEVELS:
        found = [offset for n, offset in after.found if n == number]
        assert found == list(range(found[0], found[-1] + 1)) if found else True
        epochs = after.log.partitions.epochs[number]
        assert [epoch for epoch, _ in epochs] == sorted({epoch for epoch, _ in epochs})


class Worlds:
    """Directories to crash into; the last few lives in them go on."""

    def __init__(self, path: Path) -> None:
        self._path, self._count = path, 0
        self._lives: deque[Story] = deque()

    def start(
        self,
        crash: "Crash",
        generation: int,
        boot: bytes,
        segment_bytes: int = SEGMENT_BYTES,
        refused: tuple[str, ...] = (),
    ) -> Story:
        self._count += 1
        directory = self._path / str(self._count % WORLDS)
        write_image(crash.image, directory)
        past = crash.past
        self._lives.append(Story(directory, generation, boot, segment_bytes, past, refused))
        if len(self._lives) == WORLDS:
            self._lives.popleft().log.wal.close()
        return self._lives[-1]


class Crash(NamedTuple):
    """What is left, and what must have survived: steps that were done, and levels.

    `past` is what the disk may still lose of it.
    """

    image: Image
    steps: int
    levels: set[int]
    past: Past | None


NOTHING = Crash({}, 0, set(), None)


def crash(story: Story, steps: int, chance: Random, *, loses_power: bool) -> Crash:
    """A crash after so many steps of a life, or in the middle of the last one."""
    past = Past(story.disk.image, story.disk.trace[:steps])
    if loses_power:
        return Crash(power_lost(past, chance), steps, {DISK}, None)
    if steps > story.disk.began and past.trace[-1].kind == "write":
        past, steps = torn(past, chance.choice([0, 64, 512, 4096])), steps - 1
    return Crash(killed(past), steps, {OS, DISK}, past)


def begun(story: Story, before: Story, end: Crash) -> Story:
    """The life after a crash has found what it should."""
    check(before, story, end.steps, end.levels)
    story.exact = before.exact & end.levels
    return story


@pytest.mark.slow
@pytest.mark.parametrize("loses_power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_after_any_step_loses_nothing_that_was_promised(
    tmp_path: Path, seed: int, loses_power: bool
) -> None:
    chance, worlds = Random(seed), Worlds(tmp_path)
    story = worlds.start(NOTHING, 0, BOOT).live(chance, turns=16)
    for steps in range(len(story.disk.trace) + 1):
        end = crash(story, steps, chance, loses_power=loses_power)
        boot = OTHER_BOOT if loses_power else BOOT
        check(story, worlds.start(end, 1, boot), end.steps, end.levels)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_any_subset_of_unsynced_writes_is_recovered_after_a_power_loss(
    tmp_path: Path, seed: int
) -> None:
    chance, worlds = Random(f"subsets {seed}"), Worlds(tmp_path)
    story, images = worlds.start(NOTHING, 0, BOOT).live(chance, turns=16), 0
    for steps in range(len(story.disk.trace) + 1):
        past = Past(story.disk.image, story.disk.trace[:steps])
        for image in power_losses(past, UNSYNCED_MAX):
            end = Crash(image, steps, {DISK}, None)
            check(story, worlds.start(end, 1, OTHER_BOOT), end.steps, end.levels)
            images += 1
    assert images > 2 * len(story.disk.trace)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_two_crashes_in_a_row_lose_nothing_that_was_promised(tmp_path: Path, seed: int) -> None:
    chance, worlds = Random(f"twice {seed}"), Worlds(tmp_path)
    boots = iter([f"boot {i}".encode().ljust(16) for i in range(10_000)])
    boot = next(boots)
    story = worlds.start(NOTHING, 0, boot).live(chance, turns=12)
    for _ in range(40):
        life, its_boot = story, boot
        for generation in range(1, chance.choice([3, 3, 4])):
            steps = chance.randint(life.disk.began, len(life.disk.trace))
            loses_power = chance.random() < 0.5
            end = crash(life, steps, chance, loses_power=loses_power)
            its_boot = next(boots) if loses_power else its_boot
            following = worlds.start(end, generation, its_boot)
            life = begun(following, life, end).live(chance, turns=chance.choice([0, 1, 4]))


@pytest.mark.parametrize("seed", range(4))
def test_crashes_of_lives_that_can_write_no_checkpoint(tmp_path: Path, seed: int) -> None:
    """The last one that was written knew of more than a power loss has left."""
    chance, worlds = Random(f"refused {seed}"), Worlds(tmp_path)
    boots = iter([f"boot {i}".encode().ljust(16) for i in range(10_000)])
    for _ in range(4):
        boot = next(boots)
        life = worlds.start(NOTHING, 0, boot).live(chance, turns=12)
        for generation in range(1, 8):
            steps = chance.randint(life.disk.began, len(life.disk.trace))
            loses_power = chance.random() < 0.5
            end = crash(life, steps, chance, loses_power=loses_power)
            boot = next(boots) if loses_power else boot
            refused = chance.choice([(), (FILE_NAME,), (FILE_NAME,), (".index",), REFUSED])
            following = worlds.start(end, generation, boot, refused=refused)
            life = begun(following, life, end).live(chance, turns=chance.choice([0, 2, 6, 12]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_crashes_between_changes_of_the_segments_size(tmp_path: Path, seed: int) -> None:
    chance, worlds = Random(f"sizes {seed}"), Worlds(tmp_path)
    life = worlds.start(NOTHING, 0, BOOT).live(chance, turns=8)
    for generation in range(1, 30):
        steps = chance.randint(life.disk.began, len(life.disk.trace))
        end = crash(life, steps, chance, loses_power=False)
        segment_bytes = chance.choice([2048, 4096, 8192])
        following = worlds.start(end, generation, BOOT, segment_bytes)
        life = begun(following, life, end).live(chance, turns=chance.choice([0, 3, 6]))
