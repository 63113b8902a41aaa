"""What an incremental fetch (KIP-227) costs over many partitions that have nothing new.

Its requests are encoded beforehand, and its answers are not decoded: the measurement covers the
broker and a round trip.
"""

import socket
import time
from struct import Struct

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.questions import FETCH
from smq.testing.processes import Broker
from smq.wire.codec import Writer
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.headers import RequestHeader, read_response_header, write_request_header

VERSION = 13
_SIZE = Struct(">i")


def idle_fetches(broker: Broker, topic: str, partitions: int, fetches: int) -> dict[str, float]:
    """Microseconds a fetch, as {"fetch_us", "partitions"}: of the leader that has the most."""
    with Cluster(broker.bootstrap) as cluster:
        by_leader = cluster.by_leader(topic, range(partitions))
        leader, led = max(by_leader.items(), key=lambda item: len(item[1]))
        topic_id = cluster.topic(topic).topic_id
        connection = cluster.connect(leader)
        host, _, port = connection.address.rpartition(":")
        connection.close()
    asked = [FetchPartition(partition=i, partition_max_bytes=1 << 20) for i in led]
    topics = [FetchTopic(topic_id=topic_id, partitions=asked)]
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session_id = _ask(sock, _frame(FetchRequest(session_epoch=0, topics=topics)))
        assert session_id > 0, "it is given a session"
        frames = [
            _frame(FetchRequest(session_id=session_id, session_epoch=epoch))
            for epoch in range(1, fetches + 1)
        ]
        started = time.perf_counter()
        for frame in frames:
            _receive(sock, frame)
        seconds = time.perf_counter() - started
        last = FetchRequest(session_id=session_id, session_epoch=fetches + 1)
        assert _ask(sock, _frame(last)) == session_id, "the session is as long as it was"
    return {"fetch_us": seconds / fetches * 1e6, "partitions": len(led)}


def _frame(request: FetchRequest) -> bytes:
    writer = Writer()
    write_request_header(RequestHeader(FETCH.api.key, VERSION, 1, "bench"), writer)
    FETCH.api.write_request(request, VERSION, writer)
    body = writer.to_bytes()
    return _SIZE.pack(len(body)) + body


def _ask(sock: socket.socket, frame: bytes) -> int:
    """The session's id."""
    data = _receive(sock, frame)
    _, at = read_response_header(memoryview(data), 0, FETCH.api.key, VERSION)
    response = FETCH.api.read_response(memoryview(data), at, VERSION)
    assert response.error_code == 0, f"error {response.error_code}"
    return response.session_id


def _receive(sock: socket.socket, frame: bytes) -> bytes:
    sock.sendall(frame)
    data = sock.recv(1 << 20)
    (size,) = _SIZE.unpack_from(data)
    while len(data) < _SIZE.size + size:
        more = sock.recv(1 << 20)
        assert more, "the broker has closed the connection"
        data += more
    return data[_SIZE.size :]
