"""A connection that says what it likes, and notes what comes back.

SASL's requests are written here byte by byte: half of them are wrong on purpose. An answer is noted
as plain data; `closed` and `silent` are answers too. The order of mechanisms is that of a hash set.
"""

import base64
import hashlib
import hmac
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from smq.wire.generated.api_versions import (
    ApiVersionsRequest,
    read_api_versions_response,
)
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.oracle.rights.login import password
from tests.oracle.talk import Expected, encode

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
CLOSED, SILENT, NOTHING = "closed", "silent", "an empty frame"
ANSWER_SECONDS_MAX, SILENCE_SECONDS, POLL_SECONDS = 20.0, 0.5, 0.05
FLEXIBLE_FROM = {API_VERSIONS: 3, AUTHENTICATE: 2}


@dataclass
class Knock:
    """One corner: its connection, and what was said in it so far."""

    port: int
    steps: dict[str, Any] = field(default_factory=dict)
    _socket: socket.socket | None = None

    def again(self) -> None:
        """Come back with a new connection."""
        self.close()

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

    def note(self, step: str, answer: Any) -> None:
        assert step not in self.steps, f"two steps are called {step!r}"
        self.steps[step] = answer

    def send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS_MAX)
        with suppress(ConnectionError):  # Whoever waits for the answer will see it.
            self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> bytes | str:
        """The next frame's content, or that there is none."""
        assert self._socket is not None
        self._socket.settimeout(seconds_max)
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            return self._exactly(size)
        except (ConnectionError, EOFError):
            return CLOSED
        except TimeoutError:
            return SILENT

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                raise EOFError
            data += received
        return bytes(data)

    # Requests, each with its answer.

    def handshake(self, step: str, mechanism: str, version: int = 1) -> None:
        name = mechanism.encode()
        self.send_frame(_header(HANDSHAKE, version) + struct.pack(">h", len(name)) + name)
        self.note(step, _handshaken(self.receive()))

    def begin(self, mechanism: str, version: int = 1) -> None:
        """A good handshake, without a note."""
        name = mechanism.encode()
        self.send_frame(_header(HANDSHAKE, version) + struct.pack(">h", len(name)) + name)
        answer = _handshaken(self.receive())
        assert answer["error_code"] == 0, answer

    def begin_scram(self, user: str = "alice") -> bytes:
        """A good handshake and a good first message, without a note; what the server said."""
        self.begin("SCRAM-SHA-256")
        self.send_frame(authentication(client_first(user)))
        answer = authenticated(self.receive(), 1)
        assert answer["error_code"] == 0, answer
        return bytes(answer["token"])

    def authenticate(self, step: str, token: bytes, version: int = 1) -> bytes:
        """Returns what the server said to go on with."""
        self.send_frame(authentication(token, version))
        answer = authenticated(self.receive(), version)
        said: bytes = answer.pop("token", b"") if isinstance(answer, dict) else b""
        self.note(step, answer)
        return said

    def plain(self, step: str, user: str, secret: str | None = None, version: int = 1) -> None:
        token = f"\0{user}\0{password(user) if secret is None else secret}"
        self.authenticate(step, token.encode(), version)

    def raw_token(self, step: str, token: bytes) -> bytes:
        """A token as handshake 0 has them: a frame of its own."""
        self.send_frame(token)
        answer = self.receive()
        self.note(step, answer if isinstance(answer, str) else "a token" if answer else NOTHING)
        return answer if isinstance(answer, bytes) else b""

    def api_versions(self, step: str, version: int = 3, software: str = "oracle") -> None:
        self.send_frame(_api_versions(version, software))
        answer = self.receive()
        if isinstance(answer, bytes):
            (code,) = struct.unpack_from(">h", answer, 4)
            decoded = read_api_versions_response(answer, 4, 0 if code == 35 else version)
            some = {True: "all", False: len(decoded.api_keys)}[len(decoded.api_keys) > 1]
            self.note(step, {"error_code": code, "apis": some})
        else:
            self.note(step, answer)

    def metadata(self, step: str, version: int = 9) -> None:
        self.note(step, self._metadata(version))

    def _metadata(self, version: int = 9) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        request.allow_auto_topic_creation = False
        self.send_frame(encode(request, version))
        answer = self.receive()
        if isinstance(answer, str):
            return answer
        decoded: Any = Expected(API_BY_NAME["Metadata"], version, 1).decode(answer)
        return {"topics": [each.error_code for each in decoded.topics]}

    def end(self, step: str) -> None:
        """Whether the connection is closed now, or stays and says nothing."""
        answer = self.receive(SILENCE_SECONDS)
        self.note(step, answer if isinstance(answer, str) else "something more")

    def wait_expired(self) -> None:
        """Until a session that begins now has expired: those that began before have, too."""
        witness = Knock(self.port)
        log_in_by_scram(witness, "alice")
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while witness._metadata() != CLOSED:
            assert time.monotonic() < deadline, "the session does not expire"
            time.sleep(POLL_SECONDS)
        witness.close()


def _header(key: int, version: int) -> bytes:
    tags = b"\0" if version >= FLEXIBLE_FROM.get(key, 99) else b""
    return struct.pack(">hhih", key, version, 1, 1) + b"c" + tags


def _api_versions(version: int, software: str) -> bytes:
    if version in range(5):
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        return encode(request, version)
    return _header(API_VERSIONS, version)


def authentication(token: bytes, version: int = 1) -> bytes:
    """SaslAuthenticate with this token; a version that is none looks like the last one."""
    if version >= FLEXIBLE_FROM[AUTHENTICATE]:
        length = len(token) + 1
        assert length < 128
        return _header(AUTHENTICATE, version) + bytes([length]) + token + b"\0"
    return _header(AUTHENTICATE, version) + struct.pack(">i", len(token)) + token


def _handshaken(answer: bytes | str) -> Any:
    if isinstance(answer, str):
        return answer
    code, count = struct.unpack_from(">hi", answer, 4)
    at, mechanisms = 10, []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, at)
        mechanisms.append(answer[at + 2 : at + 2 + length].decode())
        at += 2 + length
    assert at == len(answer)
    return {"error_code": code, "mechanisms": sorted(mechanisms)}


def authenticated(answer: bytes | str, version: int) -> Any:
    if isinstance(answer, str):
        return answer
    is_flexible = version >= FLEXIBLE_FROM[AUTHENTICATE]
    at = 5 if is_flexible else 4
    (code,) = struct.unpack_from(">h", answer, at)
    at += 2
    message, at = _sized(answer, at, ">h", is_flexible)
    token, at = _sized(answer, at, ">i", is_flexible)
    noted: dict[str, Any] = {"error_code": code, "error_message": message and message.decode()}
    if message == b"":
        noted["error_message"] = ""
    if version >= 1:
        (noted["session_lifetime_ms"],) = struct.unpack_from(">q", answer, at)
    return noted | {"token": token or b""}


def _sized(data: bytes, at: int, form: str, is_flexible: bool) -> tuple[bytes | None, int]:
    if is_flexible:
        length, at = data[at], at + 1
        if length >= 128:
            length, at = length & 127 | data[at] << 7, at + 1
        length -= 1
    else:
        (length,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    return (data[at : at + length], at + length) if length >= 0 else (None, at)


# A client's side of SCRAM, that may say each part wrong.

NONCE = "oraclesnonce"


def client_first(user: str, header: str = "n,,", nonce: str = NONCE, more: str = "") -> bytes:
    return f"{header}n={user},r={nonce}{more}".encode()


def client_final(said: bytes, user: str, *, algorithm: str = "sha256", **wrong: str) -> bytes:
    """The proof; `wrong` gives another secret, header or nonce than the right one."""
    fields = dict(each.split("=", 1) for each in said.decode().split(","))
    salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
    secret = wrong.get("secret", password(user)).encode()
    salted = hashlib.pbkdf2_hmac(algorithm, secret, salt, rounds)
    key = hmac.digest(salted, b"Client Key", algorithm)
    header = base64.b64encode(wrong.get("header", "n,,").encode()).decode()
    bare = f"c={header},r={wrong.get('nonce', fields['r'])}"
    signed = f"n={user},r={NONCE},{said.decode()},{bare}".encode()
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def log_in_by_scram(knock: Knock, user: str) -> None:
    """A login whose session has a lifetime, without a note."""
    said = knock.begin_scram(user)
    _accepted(knock, client_final(said, user))


def log_in(knock: Knock, user: str) -> None:
    """A login whose session has no lifetime, without a note."""
    knock.begin("PLAIN")
    _accepted(knock, f"\0{user}\0{password(user)}".encode())


def _accepted(knock: Knock, token: bytes) -> None:
    knock.send_frame(authentication(token))
    answer = authenticated(knock.receive(), 1)
    assert answer["error_code"] == 0, answer
