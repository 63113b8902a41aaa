"""Charges of connections with quotas, and the throttle times in their answers."""

from struct import Struct
from types import SimpleNamespace
from typing import Any

import numpy as np

from smq.app.shard.connections.limited import (
    charge_time,
    identify,
    identify_by,
    look,
    obey,
    settled,
)
from smq.model.client_quotas import CLIENT, CONSUME, PRODUCE, REQUEST_TIME, USER, key_of
from smq.security.caller import Caller
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.shard.quotas import ClientQuotas
from smq.wire.codec import Writer
from smq.wire.headers import RequestHeader, write_request_header

INT32 = Struct(">i")
SLOW = {key_of({CLIENT: "slow"}): {PRODUCE: "100.0", CONSUME: "100.0", REQUEST_TIME: "1.0"}}


class Muted:
    """A connection as far as quotas know it."""

    def __init__(self) -> None:
        self.client_id: str | None = None
        self.limits: Any = None
        self.is_limited = False
        self.until_ms, self.caller = 0, Caller()

    def throttle(self, delay_ms: int) -> None:
        self.until_ms = max(self.until_ms, delay_ms)

    def owed_ms(self) -> int:
        return self.until_ms


def quotas_of(found: dict[str, dict[str, str]]) -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.take(found)
    return quotas


def request(key: int, client_id: str | None, size: int = 0) -> bytes:
    writer = Writer()
    write_request_header(RequestHeader(key, 9, 1, client_id), writer)
    body = writer.to_bytes() + bytes(size)
    return INT32.pack(len(body)) + body


def buffer(data: bytes) -> Any:
    return SimpleNamespace(array=np.frombuffer(data, np.uint8), start=0, end=len(data))


def slow() -> Any:
    connection: Any = Muted()
    identify(connection, "slow", quotas_of(SLOW))
    return connection


def test_a_client_that_is_not_known_yet_is_the_loops_until_it_is() -> None:
    quotas = quotas_of(SLOW)
    connection: Any = Muted()
    look(connection, quotas)
    assert connection.is_limited
    identify_by(connection, buffer(request(0, "fast")[:9]), quotas)
    assert not connection.client_id
    identify_by(connection, buffer(request(0, "fast")), quotas)
    assert (connection.client_id, connection.is_limited) == ("fast", False)
    quotas.take({key_of({CLIENT: None}): {PRODUCE: "5.0"}})
    look(connection, quotas)
    assert connection.is_limited
    quotas.take({})
    look(connection, quotas)
    assert not connection.is_limited


def test_a_quota_of_a_user_is_of_who_has_logged_in() -> None:
    quotas = quotas_of({key_of({USER: "ann"}): {PRODUCE: "5.0"}})
    connections: dict[str, Any] = {name: Muted() for name in ("ann", "ben")}
    for name, connection in connections.items():
        peer = Peer(Principal("User", name))
        connection.caller.rights = Rights(None, peer)
        identify(connection, "one id", quotas)
    assert connections["ann"].is_limited
    assert not connections["ben"].is_limited


def test_a_fetch_is_charged_what_goes_out_and_says_how_long_to_wait() -> None:
    connection, header = slow(), RequestHeader(1, 12, 7, "slow")
    first = INT32.pack(0) + INT32.pack(7) + b"\0" + INT32.pack(0) + b"rest"
    lent = SimpleNamespace(length=1000)
    pieces: Any = settled(connection, header, [first, lent], 0)
    wait_ms = (len(first) + 1000 - 100) * 10 + 1
    assert [*pieces] == [first[:9] + INT32.pack(wait_ms) + b"rest", lent]
    other = RequestHeader(3, 12, 7, "slow")
    assert settled(connection, other, [first], 0) == [first]


def test_the_time_of_requests_is_charged() -> None:
    connection = slow()
    charge_time(connection, 10_000_000, 0)
    assert connection.until_ms == 0
    charge_time(connection, 10_000_000, 0)
    assert connection.until_ms == 1000


def test_the_throttle_time_in_the_coordinators_answer_mutes_the_connection() -> None:
    connection = slow()
    obey(connection, 19, 7, INT32.pack(7) + b"\0" + INT32.pack(500))
    assert connection.until_ms == 500
    obey(connection, 3, 7, INT32.pack(7) + INT32.pack(9000))
    assert connection.until_ms == 500
