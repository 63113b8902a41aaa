"""The front of a real broker: kills, full disks, large objects, sealed segments as files."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from smq.app.front import server
from smq.app.front.server import SWITCH_S, health, own_names, serve_http
from smq.app.process.clock import monotonic_ms
from smq.client.kafka.cluster import Cluster
from smq.filer.local import UNFINISHED
from smq.testing.s3_server import s3_server, settings_for
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.app.http_client import ask, request
from tests.broker.one_topic import SETTINGS, OneTopic, store_of
from tests.model.configs import config_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MiB = 1 << 20
FRONT = {**SETTINGS, "http.port": "0", "filer.reserve.bytes": "0"}
LARGE_BYTES = 192 * MiB
# The front's own, threads' stacks, and some pieces on their way: not the object.
GROWTH_BYTES_MAX = 96 * MiB  # A few copies of a part that is on its way to S3; not of the object.


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, FRONT) as broker:
        yield broker


def test_the_loop_waits_shortly_for_the_threads_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Python's 5 ms three pages delayed each of the loop's steps by some tens of them."""
    found, before_s = list[float](), sys.getswitchinterval()

    async def noted(_: object) -> None:
        found.append(sys.getswitchinterval())

    monkeypatch.setattr(server, "_serve", noted)
    inheritance: Any = None
    try:
        serve_http(inheritance)
    finally:
        sys.setswitchinterval(before_s)
    assert found == [pytest.approx(SWITCH_S)]


def test_http_is_asked_under_the_names_of_all_listeners() -> None:
    """Of a broker whose first node is not 1, too."""
    given = {"advertise": "queue.example:9092", "node.id": 7, "http.host": "10.0.0.1"}
    assert own_names(config_of(command_line=given)) >= {"queue.example", "10.0.0.1"}
    given = {"listeners": "A://127.0.0.1:1,B://0.0.0.0:300"}
    given |= {"advertised.listeners": "B://queue.example"}
    given |= {"listener.security.protocol.map": "A:PLAINTEXT,B:SASL_SSL"}
    assert own_names(config_of(command_line=given)) >= {"queue.example", "127.0.0.1"}


def front_pid(broker: SmqBroker) -> int:
    return broker.status().processes["front"].pid


def resident_bytes(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(what)]
    return int(line.split()[1]) * 1024


def large_body() -> Iterator[bytes]:
    piece = os.urandom(MiB)
    for _ in range(LARGE_BYTES // MiB):
        yield piece


@contextmanager
def half_an_upload(broker: SmqBroker) -> Iterator[socket.socket]:
    """A client in the middle of a body of 10 MiB, of which the front has got a part."""
    host, _, port = broker.status().http.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(
            b"PUT /filer/docs/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            % (10 * MiB)
        )
        client.sendall(bytes(3 * MiB))
        unfinished = broker.data_dir / "filer" / UNFINISHED
        eventually(
            lambda: any(path.stat().st_size for path in unfinished.glob("*")),
            "a part of it is in the filer's directory",
        )
        yield client


def test_health_tells_of_every_process(broker: SmqBroker, tmp_path: Path) -> None:
    told = ask(broker, "GET", "/health")
    assert told.status == 200
    assert told.json["bootstrap"] == broker.bootstrap
    assert {*told.json["processes"]} == {"shard-1", "coordinator", "sealer", "front"}
    assert health(tmp_path / "nobody") == {"ready": False, "processes": {}}


def test_a_killed_front_comes_back_and_half_an_upload_is_nothing(broker: SmqBroker) -> None:
    assert ask(broker, "PUT", "/filer/docs/a", b"whole").status == 201
    shard = broker.status().processes["shard-1"].pid
    with half_an_upload(broker) as client:
        broker.kill("front")
        broker.restart()
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert [each["key"] for each in ask(broker, "GET", "/filer/").json["objects"]] == ["docs/a"]
    assert ask(broker, "GET", "/filer/docs/a").body == b"whole"
    assert [*(broker.data_dir / "filer" / UNFINISHED).iterdir()] == []
    assert broker.status().processes["front"].restarts == 1
    assert broker.status().processes["shard-1"].pid == shard


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000,
        b"PUT /filer/docs/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"PUT /filer/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /filer/docs/%00%ff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_the_next_is_served(broker: SmqBroker, garbage: bytes) -> None:
    host, _, port = broker.status().http.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as client,
        suppress(ConnectionResetError, BrokenPipeError),
    ):
        client.sendall(garbage)
        answered = client.makefile("rb").read()
        assert not answered or answered.startswith(b"HTTP/1.1 400")
    assert ask(broker, "GET", "/filer/").json == {"objects": [], "next": None}
    assert broker.status().processes["front"].restarts == 0


def test_a_refusal_is_heard_by_one_who_sends_all_the_same(broker: SmqBroker) -> None:
    refused = ask(broker, "PUT", "/filer/topics/kafka/x", bytes(8 * MiB))
    assert (refused.status, "only the broker" in refused.json["error"]) == (403, True)


def test_a_client_that_leaves_is_forgotten(broker: SmqBroker) -> None:
    with half_an_upload(broker):
        pass
    unfinished = broker.data_dir / "filer" / UNFINISHED
    eventually(lambda: not [*unfinished.iterdir()], "what it sent is gone")
    assert ask(broker, "GET", "/filer/docs/half").status == 404


def test_a_stop_does_not_wait_for_an_upload(broker: SmqBroker) -> None:
    with half_an_upload(broker):
        started_ms = monotonic_ms()
        broker.stop()
        assert monotonic_ms() - started_ms < 5000
    assert "Traceback" not in broker.tail()


@pytest.mark.parametrize("where", ["directory", "S3"])
def test_large_objects_take_no_memory_either_way(tmp_path: Path, where: str) -> None:
    with s3_server(tmp_path) as server:
        told = settings_for(server, tmp_path, "x") if where == "S3" else {}
        with SmqBroker(tmp_path, FRONT | told) as broker:
            ask(broker, "PUT", "/filer/docs/small", bytes(MiB))
            ask(broker, "GET", "/filer/docs/small")
            before = resident_bytes(front_pid(broker), "VmRSS")
            assert ask(broker, "PUT", "/filer/docs/large", large_body()).json["bytes"] == (
                LARGE_BYTES
            )
            got = 0
            with request(broker, "GET", "/filer/docs/large") as response:
                while piece := response.read(MiB):
                    got += len(piece)
            assert got == LARGE_BYTES
            grown = resident_bytes(front_pid(broker), "VmHWM") - before
            assert grown < GROWTH_BYTES_MAX


def test_sealed_segments_are_files_for_everybody(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "orders")
        topic.append(write_batch([Record(0, 7, b"k", b"v")]))
        [segment] = topic.wait_sealed(1)
    listed = ask(broker, "GET", "/filer/topics/kafka/orders/").json["objects"]
    assert [(each["key"], each["bytes"]) for each in listed] == [(segment.path, segment.bytes)]
    got = ask(broker, "GET", f"/filer/{segment.path}")
    assert got.body == store_of(broker).get(segment.path)
    assert got.body[:4] == b"PAR1"
    assert ask(broker, "DELETE", f"/filer/{segment.path}").status == 403


def test_a_quota_survives_the_front(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, FRONT | {"filer.quota.bytes": str(MiB)}) as broker:
        eventually(lambda: ask(broker, "PUT", "/filer/docs/a", bytes(MiB)).status == 201, "counted")
        assert ask(broker, "PUT", "/filer/docs/b", b"x").status == 507
        broker.kill("front")
        broker.restart()

        def refused() -> bool:
            answer = ask(broker, "PUT", "/filer/docs/b", b"x")
            assert answer.status in {503, 507}  # 503 until it is counted.
            return answer.status == 507

        eventually(refused, "the quota is counted again")
        assert ask(broker, "PUT", "/filer/other/b", b"x").status == 201


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of its own."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_fails_the_upload_and_nothing_else(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with (
        small_disk(disk, "16m"),
        SmqBroker(tmp_path, FRONT | {"filer.root": str(disk / "filer")}) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        topic = OneTopic(broker, cluster, "orders")
        full = ask(broker, "PUT", "/filer/docs/a", (bytes(MiB) for _ in range(20)))
        assert full.status == 507
        assert "the filer's disk has" in full.json["error"]
        assert ask(broker, "GET", "/filer/").json["objects"] == []
        assert topic.append(write_batch([Record(0, 7, b"k", b"v")])) == 0
        topic.wait_sealed(1)
        assert ask(broker, "PUT", "/filer/docs/a", bytes(MiB)).status == 201
        assert broker.status().processes["front"].restarts == 0


def test_an_upload_leaves_the_log_its_reserve(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, FRONT | {"filer.reserve.bytes": "1000TiB"}) as broker:
        refused = ask(broker, "PUT", "/filer/docs/a", b"x")
        assert refused.status == 507
        assert "filer.reserve.bytes" in refused.json["error"]
