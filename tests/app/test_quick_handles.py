"""Handles in the kernel's turns: taken where they are plainly good, by the topics of now."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.app.process.clock import wall_ms
from smq.filer.local import LocalStore
from smq.model.errors import ErrorCode
from smq.model.references import Reference
from smq.model.setting import PathOrUrl
from smq.shard.references import NoFiler
from smq.testing.payloads import handle_batch, reference_to, uploaded
from tests.app.quick import Quick
from tests.app.shard_client import Client, ServerBench, benches
from tests.shard.shard_bench import catalog, produce_request, responses, topic

MINUTE_S = 60
Make = Callable[[], ServerBench]
pytestmark = pytest.mark.usefixtures("always_quick")


@pytest.fixture
def filer(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "filer")


@pytest.fixture
def good(filer: LocalStore) -> Reference:
    """Of a minute ago."""
    reference, then = uploaded(filer, "one", b"payload"), wall_ms() / 1000 - MINUTE_S
    os.utime(filer.root / reference.key("one"), (then, then))
    return reference


@pytest.fixture
def bench(tmp_path: Path, filer: LocalStore) -> Iterator[ServerBench]:
    with benches(tmp_path, ServerBench) as make:
        yield make(topic("one"), filer_root=PathOrUrl(str(filer.root)))


def send(client: Client, *references: Reference, name: str = "one") -> ErrorCode:
    """What becomes of handles."""
    client.received = b""
    client.send(produce_request({name: {0: handle_batch(references)}}))
    client.wait(1)
    [(_, response)] = responses(client.received)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_the_kernel_takes_them_once_the_loop_has_found_one_good(
    bench: ServerBench, good: Reference
) -> None:
    quick, client = Quick(bench), bench.client()
    assert send(client, good) == ErrorCode.NONE
    bench.server.requests._producing._handles = NoFiler()  # Who would refuse all of them.
    before = quick.taken
    for _ in range(3):
        assert send(client, good, good) == ErrorCode.NONE
    assert quick.taken == before + 3
    assert send(client, good, reference_to(b"gone")) == ErrorCode.INVALID_RECORD


def test_a_deleted_payload_is_refused_in_the_next_handle(
    bench: ServerBench, filer: LocalStore, good: Reference
) -> None:
    client = bench.client()
    for _ in range(2):
        assert send(client, good) == ErrorCode.NONE
    filer.delete(good.key("one"))
    assert send(client, good) == ErrorCode.INVALID_RECORD
    assert bench.shard.led()[0].offsets().log_end == 2


@pytest.mark.parametrize(
    ("name", "configs"), [("one", {"smq.reference.orphan.ms": "1000"}), ("two", {})]
)
def test_the_catalog_of_now_decides(
    bench: ServerBench, good: Reference, name: str, configs: dict[str, str]
) -> None:
    client = bench.client()
    for _ in range(2):
        assert send(client, good) == ErrorCode.NONE
    bench.publish(catalog(topic(name, configs=configs)))  # A partition of the same number.
    assert send(client, good, name=name) == ErrorCode.INVALID_RECORD
