"""Holds many mostly idle connections, each with an occasional request."""

import resource
import struct
from collections.abc import Generator
from itertools import cycle

from smq.app.process.clock import monotonic_ns, sleep
from smq.client.clock import SYSTEM_CLOCK
from smq.client.kafka.cluster import addresses_of
from smq.client.kafka.connection import Stream, opened
from smq.load.logins import way_of
from smq.model.errors import BrokerError, PeerError

# ApiVersions, version 0 (KIP-35): size, key 18, version, correlation id, client id "bench".
REQUEST = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"bench")
SPARE_FILES = 100
PAUSE_S = 0.001  # Between two requests, over all connections.
ANSWER_S_MAX = 30.0


def hold(bootstrap: str, count: int) -> Generator[int, None, None]:
    """Open `count` connections and await an answer on each; then send requests on them in turn,
    without end. They log in as --command-config and the environment say, once.

    The first yield, a number, means that all are open. Each later one is the ns at which a request
    was sent, yielded once it is answered. Raises OSError, NoWay, BrokerUnavailable.
    """
    _allow_files(count + SPARE_FILES)
    way = way_of(bootstrap)
    addresses = cycle(addresses_of(way.bootstrap))
    held: list[Stream] = []
    try:
        for number in range(count):
            try:
                held.append(opened(*next(addresses), SYSTEM_CLOCK, way.security))
                held[-1].settimeout(ANSWER_S_MAX)
                _ask(held[-1])
            except (OSError, BrokerError, PeerError) as error:
                raise OSError(
                    f"of {count} connections the broker took {number}: {error}"
                ) from error
        yield count
        for each in cycle(held):
            sleep(PAUSE_S)
            asked_ns = monotonic_ns()
            _ask(each)
            yield asked_ns
    finally:
        for each in held:
            each.close()


def _ask(connection: Stream) -> None:
    connection.sendall(REQUEST)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    _exactly(connection, size)


def _exactly(connection: Stream, size: int) -> bytes:
    data = memoryview(bytearray(size))
    received = 0
    while received < size:
        count = connection.recv_into(data[received:])
        if not count:
            raise ConnectionResetError("the broker closed a connection")
        received += count
    return bytes(data)


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files. Raises OSError if the system allows fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise OSError(f"{count} connections need as many open files; `ulimit -Hn` is {hard}")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
