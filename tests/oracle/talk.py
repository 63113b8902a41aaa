"""A dialogue with a broker: requests in, answers noted down as plain data.

A dialogue is a function of a `Talk`. What it `ask`s is noted; what it needs beforehand (a topic, a
producer id) it gets by `quietly` asking, which is not. It may speak with several `Voice`s, each a
connection of its own. A connection that the broker closes is an answer too; the voice then goes on
with a new connection.
"""

import importlib
import re
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from smq.wire.api import WireApi
from smq.wire.codec import Malformed, Message, Writer
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from tests.oracle.plain import CLOSED, SILENT, Names, made_up_part, plain

CLIENT_ID = "oracle"
ANSWER_SECONDS_MAX = 10.0
SETTLE_SECONDS_MAX = 10.0
POLL_SECONDS = 0.01
_SIZE = struct.Struct(">i")
_ERRORS_WHILE_STARTING = {3, 5, 6, 14, 15, 16, 100}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def encode(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """A request with its header, without its size."""
    api = type(request).__name__.removesuffix("Request")
    writer = Writer()
    header = RequestHeader(API_BY_NAME[api].key, version, correlation_id, CLIENT_ID)
    write_request_header(header, writer)
    module = importlib.import_module(f"smq.wire.generated.{snake(api)}")
    getattr(module, f"write_{snake(api)}_request")(request, version, writer)
    return writer.to_bytes()


@dataclass(frozen=True, slots=True)
class Expected:
    """The answer that is awaited: of which API and version, to which request."""

    api: WireApi[Any, Any]
    version: int
    correlation_id: int

    def decode(self, frame: bytes) -> Message:
        correlation_id, at = read_response_header(frame, 0, self.api.key, self.version)
        if correlation_id != self.correlation_id:
            raise Malformed(f"answer {correlation_id} to request {self.correlation_id}")
        name = snake(self.api.name)
        module = importlib.import_module(f"smq.wire.generated.{name}")
        message = getattr(module, f"read_{name}_response")(frame, at, self.version)
        assert isinstance(message, Message)
        return message


@dataclass(slots=True)
class Talk:
    """One dialogue in one version of its API, and what was said in it so far."""

    port: int
    dialogue: str
    version: int
    steps: dict[str, Any] = field(default_factory=dict)
    names: Names = field(init=False)
    _voices: list["Voice"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = Names(self.own())
        self.voice()

    def connect(self) -> socket.socket:
        """Open a connection, for any of the voices."""
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS_MAX)

    def voice(self) -> "Voice":
        """One more connection."""
        voice = Voice(self)
        self._voices.append(voice)
        return voice

    def close(self) -> None:
        for voice in self._voices:
            voice.close()

    def own(self, suffix: str = "") -> str:
        """A name of a topic or a group that no other dialogue has."""
        return f"{self.dialogue}-v{self.version}{suffix and '-'}{suffix}"

    def ask(self, step: str, request: Message, **how: Any) -> Any:
        return self._voices[0].ask(step, request, **how)

    def ask_raw(self, step: str, frame: bytes, **how: Any) -> Any:
        return self._voices[0].ask_raw(step, frame, **how)

    def tell(self, request: Message, **how: Any) -> None:
        self._voices[0].tell(request, **how)

    def note(self, step: str, answer: Any) -> None:
        assert step not in self.steps, f"two steps are called {step!r}"
        self.steps[step] = answer

    def meet(self, member_id: str) -> None:
        """Give a member its name now, not when it is first seen in an answer."""
        made_up_part(member_id, self.names)

    def quietly(self, request: Message, version: int | None = None) -> Any:
        """Ask over a connection of its own, without a note; closed or silent is an error here."""
        voice = Voice(self)
        try:
            voice.begin(request, version=version)
            answer = voice.finish()
        finally:
            voice.close()
        assert isinstance(answer, Message), answer
        return answer

    def until(self, request: Message, good: Callable[[Any], bool], version: int) -> Any:
        """Ask quietly again until the answer is good."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not good(answer := self.quietly(request, version)):
            assert time.monotonic() < deadline, answer
            time.sleep(POLL_SECONDS)
        return answer

    def make_topic(self, suffix: str = "", partitions: int = 1, **configs: str) -> str:
        """Create a topic with configs (`retention_ms="1"`), and wait until it can be used."""
        name = self.own(suffix)
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=settings
        )
        answer = self.quietly(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert answer.topics[0].error_code == 0, answer
        self.settle(name, partitions)
        return name

    def settle(self, topic: str, partitions: int = 1) -> None:
        """Wait until every partition of a topic has a leader that knows it."""
        asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
        )
        self.until(
            request, lambda answer: not any(e.error_code for e in answer.topics[0].partitions), 4
        )

    def topic_id(self, topic: str) -> Any:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        return self.quietly(request, 12).topics[0].topic_id


class Voice:
    """One connection of a dialogue."""

    def __init__(self, talk: Talk) -> None:
        self.answer_seconds_max = ANSWER_SECONDS_MAX
        self._talk = talk
        self._socket: socket.socket | None = None
        self._expected: Expected | None = None
        self._correlation_id = 0

    def ask(self, step: str, request: Message, **how: Any) -> Any:
        """Ask, note the answer; returns it, or None if there was none."""
        trim = how.pop("trim", None)
        self.answer_seconds_max = how.pop("seconds_max", ANSWER_SECONDS_MAX)
        self.begin(request, **how)
        return self.note(step, trim)

    def ask_raw(
        self,
        step: str,
        frame: bytes,
        *,
        answer: tuple[str, int] = ("ApiVersions", 0),
        size: int | None = None,
        trim: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send these very bytes behind their size (or a lie about it), note what comes back.

        `answer` is the API and the version in which an answer is expected.
        """
        api, version = answer
        correlation_id = int.from_bytes(frame[4:8], signed=True) if len(frame) >= 8 else 0
        self._expected = Expected(API_BY_NAME[api], version, correlation_id)
        self._send(_SIZE.pack(len(frame) if size is None else size) + frame)
        return self.note(step, trim)

    def tell(self, request: Message, **how: Any) -> None:
        """Say something that gets no answer."""
        self.begin(request, **how)
        self._expected = None

    def begin(self, request: Message, *, version: int | None = None) -> None:
        """Ask, without waiting for the answer."""
        api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
        version = self._talk.version if version is None else version
        self._correlation_id += 1
        self._expected = Expected(api, version, self._correlation_id)
        frame = encode(request, version, self._correlation_id)
        self._send(_SIZE.pack(len(frame)) + frame)

    def finish(self) -> Message | str:
        """The answer to what was begun: a message, or words."""
        expected, self._expected = self._expected, None
        assert expected is not None
        try:
            return expected.decode(self._receive())
        except (ConnectionError, EOFError):
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return SILENT
        except Malformed as reason:
            self.close()
            return f"malformed: {reason}"

    def note(self, step: str, trim: Callable[[Any], None] | None = None) -> Any:
        """The answer to what was begun, noted: `trim` leaves out what others have to do with."""
        answer = self.finish()
        if isinstance(answer, str):
            self._talk.note(step, answer)
            return None
        if trim:
            trim(answer)
        self._talk.note(step, plain(answer, self._talk.names))
        return answer

    def release(self) -> socket.socket | None:
        """Let go of the connection, if there is one."""
        connection, self._socket = self._socket, None
        return connection

    def close(self) -> None:
        connection = self.release()
        if connection:
            connection.close()

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = self._talk.connect()
        self._socket.settimeout(self.answer_seconds_max)
        with suppress(ConnectionError):  # Whoever waits for the answer will see it.
            self._socket.sendall(data)

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                raise EOFError
            data += received
        return bytes(data)


def starting(answer: Any) -> bool:
    """Whether a broker that has just started says that it needs a moment."""
    return answer.error_code in _ERRORS_WHILE_STARTING
