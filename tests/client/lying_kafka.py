"""A Kafka that lies: it changes one place of an answer, chosen by a seed, as no broker would.

Names that nobody asked for, with control characters or parts of paths; numbers at the ends of their
range; lists that are empty, or say everything twice; records that are damaged.
"""

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from struct import error as cannot_be_packed
from typing import Any

from smq.wire.api import WireApi
from smq.wire.codec import Message, Writer
from tests.client.fake_kafka import HANDLERS, FakeKafka

ESCAPE = "\x1b[31mred"
TEXTS = ["", f"{ESCAPE}\n", "../../etc/passwd", "a\0b", "x" * 30_000, "t", ".", "\N{SNOWMAN}"]
NUMBERS = [-1, 0, 1, 2, -2, 7, 2**15 - 1, 70_000, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]
BYTES = [0, 1, 0x7F, 0x80, 0xFF]


class LyingKafka(FakeKafka):
    """Lies in this share of the answers to these APIs. `lies` has what was changed."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(0)
        self.apis: Collection[str] = ()
        self.share = 0.0
        self.lies: list[str] = []

    def lie(self, seed: int) -> None:
        """Begin to."""
        self.random = random.Random(seed)
        self.apis = self.random.sample([*HANDLERS], self.random.choice([1, 2, len(HANDLERS)]))
        self.share = self.random.choice([0.3, 1.0])

    def _answer(self, node_id: int, data: bytes) -> bytes | None:
        try:
            return super()._answer(node_id, data)
        except (LookupError, ValueError):  # It is asked about what there is only in its lies.
            return None

    def twist(self, api: WireApi[Any, Any], version: int, response: Any) -> None:
        """See FakeKafka."""
        if api.name not in self.apis or self.random.random() >= self.share:
            return
        owner, name = self.random.choice([*_places(response)])
        value = getattr(owner, name)
        setattr(owner, name, self._lie_about(value))
        try:
            api.write_response(response, version, Writer())
        except (cannot_be_packed, ValueError, AssertionError):  # No broker could say it.
            setattr(owner, name, value)
            return
        self.lies.append(f"{type(owner).__name__}.{name} = {getattr(owner, name)!r:.80}")

    def _lie_about(self, value: Any) -> Any:
        match value:
            case bool():
                return not value
            case int():
                return self.random.choice([*NUMBERS, value + 1, value - 1])
            case str():
                return self.random.choice(TEXTS)
            case bytes():
                return self._damaged(value)
            case list():
                return value * self.random.choice([0, 2, 50])
        return value

    def _damaged(self, value: bytes) -> bytes:
        kind = self.random.randrange(5)
        if kind == 0:
            return value * 2
        if kind == 1:
            return value[: self.random.randrange(len(value) + 1)]
        if kind == 2:
            return self.random.randbytes(100)
        damaged = bytearray(value)
        for _ in range(kind if value else 0):
            damaged[self.random.randrange(min(len(value), 80))] = self.random.choice(BYTES)
        return bytes(damaged)


def _places(message: Message) -> Iterator[tuple[Message, str]]:
    """All attributes of a message and of those in it."""
    for name in type(message).__slots__:
        yield message, name
        value = getattr(message, name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _places(each)


@contextmanager
def lying_kafka() -> Iterator[LyingKafka]:
    fake = LyingKafka()
    try:
        yield fake
    finally:
        fake.close()
