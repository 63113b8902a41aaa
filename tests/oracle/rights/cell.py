"""A cell of the matrix: one dialogue in one version, played by one principal who has logged in."""

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from smq.wire.codec import Message
from tests.oracle.plain import plain
from tests.oracle.rights.login import log_in
from tests.oracle.rights.principals import ADMIN, HERE
from tests.oracle.talk import ANSWER_SECONDS_MAX, POLL_SECONDS, Talk

PATIENCE_SECONDS = 60.0  # Kafka's controller has been seen to stop for longer than ten.
_REFUSED = {29, 30, 31, 53}
UNKNOWN_ID = UUID(int=0x1234)
EXISTING, MISSING = ("allowed", "denied"), ("new", "unknown")
WORDS = ("allowed", "new", "denied", "unknown")
# What is counted on from principal to principal, and says nothing about rights.
_COUNTED = {"base_offset", "producer_epoch", "leader_epoch", "committed_leader_epoch"}
# Which of several it is depends on what else a principal may see.
_MADE_UP = re.compile(r"<(producer|session|topic id|uuid) \d+>")
# What a row of an answer is about. Their order is not compared here.
_ABOUT = (
    "resource_type", "resource_name", "name", "topic", "topic_name", "topic_id", "group_id", "key",
    "transactional_id", "partition_index", "partition", "index",
)  # fmt: skip


class Doors:
    """Connections to a broker, each logged in, kept for who needs one next."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._idle: dict[tuple[str, str], list[socket.socket]] = {}

    def take(self, user: str, host: str = HERE) -> socket.socket:
        """A connection of this user that comes from this address."""
        idle = self._idle.get((user, host))
        if idle:
            return idle.pop()
        address = ("127.0.0.1", self.port)
        connection = socket.create_connection(address, ANSWER_SECONDS_MAX, (host, 0))
        log_in(connection, user)
        return connection

    def give(self, user: str, host: str, connection: socket.socket) -> None:
        self._idle.setdefault((user, host), []).append(connection)

    def close(self) -> None:
        for connections in self._idle.values():
            for each in connections:
                each.close()


@dataclass(slots=True, kw_only=True)
class Cell(Talk):
    """What one principal asks; `turn` counts the principals of a dialogue from 0.

    `quietly` asks as a super user. `ids` are those of the topics that exist.
    """

    doors: Doors
    principal: str = ADMIN
    host: str = HERE
    turn: int = 0
    ids: dict[str, UUID] = field(default_factory=dict)

    def connect(self) -> socket.socket:
        return self.doors.take(self.principal, self.host)

    def close(self) -> None:
        for voice in self._voices:
            connection = voice.release()
            if connection:
                self.doors.give(self.principal, self.host, connection)

    def quietly(self, request: Message, version: int | None = None) -> Any:
        admin = Cell(self.port, self.dialogue, self.version, doors=self.doors)
        voice = admin.voice()
        voice.answer_seconds_max = PATIENCE_SECONDS
        voice.begin(request, version=version)
        answer = voice.finish()
        admin.close()
        assert isinstance(answer, Message), answer
        return answer

    def until_allowed(self, request: Message, version: int) -> None:
        """Ask until a right that was given holds, without a note: Kafka's broker learns it late."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._voices[0].begin(request, version=version)
            answer = self._voices[0].finish()
            assert isinstance(answer, Message), answer
            if not _REFUSED & set(_codes(plain(answer, self.names))):
                return
            assert time.monotonic() < deadline, answer
            time.sleep(POLL_SECONDS)

    def ask(self, step: str, request: Message, **how: Any) -> Any:
        return self._voices[0].ask(step, request, **({"seconds_max": PATIENCE_SECONDS} | how))

    def note(self, step: str, answer: Any) -> None:
        noted = _ordered(answer)
        assert step not in self.steps, f"two steps are called {step!r}"
        self.steps[step] = noted

    def all(self) -> list[str]:
        return [self.own(word) for word in WORDS]

    def topic_ids(self) -> list[UUID]:
        """Those of `allowed` and `denied`, and one that no topic has."""
        return [*self.ids.values(), UNKNOWN_ID]

    def know_ids(self) -> None:
        """Learn the ids of the topics, and how answers show them."""
        for word in EXISTING:
            self.ids[word] = self.topic_id(self.own(word))
        self.name_ids()

    def name_ids(self) -> None:
        for word, topic_id in {**self.ids, "nothing": UNKNOWN_ID}.items():
            self.names.call("topic id", topic_id, f"<id of {word}>")


def _ordered(answer: Any) -> Any:
    match answer:
        case {"record_count": _, "records": records}:  # A batch.
            return [each["value"] for each in records]
        case dict():
            return {name: _ordered(each) for name, each in answer.items() if name not in _COUNTED}
        case list():
            return sorted(map(_ordered, answer), key=_place)
        case str():
            return _MADE_UP.sub(r"<\1>", answer)
    return answer


def _codes(answer: Any) -> Iterator[int]:
    """Every error code in an answer."""
    for name, value in answer.items() if isinstance(answer, dict) else ():
        if name == "error_code":
            yield value
        yield from _codes(value)
    for value in answer if isinstance(answer, list) else ():
        yield from _codes(value)


def _place(row: Any) -> str:
    if not isinstance(row, dict):
        return ""
    return json.dumps([row.get(name, "") for name in _ABOUT])
