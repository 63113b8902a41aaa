"""Where a shard has all of a transaction, a commit is readable once it is answered."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.app.shard.commands import ShardCommands
from smq.model.errors import ErrorCode
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.internal.form import decode_answer, encode_question
from smq.wire.internal.frames import ACCEPTOR_IDS_FROM, InternalReader
from smq.wire.internal.transactions import WriteMarkers
from tests.app.shard.requests.test_transactional import (
    NUMBER,
    PRODUCER,
    transactional,
    wait_for_question,
)
from tests.app.shard_client import ServerBench, benches, fetch, fetched, request, settle
from tests.shard.shard_bench import topic

Make = Callable[..., ServerBench]


class OurLink:
    """The shard's link to the coordinator."""

    closed = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, *frame: bytes) -> None:
        self.sent.append(b"".join(frame))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def test_an_order_that_came_before_an_answer_is_executed_before_it_goes_out(make: Make) -> None:
    bench, link = make(topic("one")), OurLink()
    ShardCommands(bench.loop, bench.shard, bench.peers)  # type: ignore[arg-type]
    client, reader = bench.client(), bench.client()
    client.send(transactional(b"a"))
    wait_for_question(bench)[1]([0])
    client.wait(1)
    client.send(request("EndTxn", 5, EndTxnRequest(), 2))
    settle(bench, client)
    [(asked, answered)] = bench.peers.relayed
    question = WriteMarkers(PRODUCER[0], PRODUCER[1] + 1, True, 0, 2, [NUMBER])
    [frame] = InternalReader().receive(encode_question(ACCEPTOR_IDS_FROM, question))
    bench.peers.order(link, frame)
    answered(asked[4:8] + b"answer")
    client.wait(2)
    reader.send(fetch("one", isolation_level=1))
    found = fetched(reader.wait(1)[0])
    assert (found.last_stable_offset, found.aborted_transactions) == (2, [])
    [answer] = InternalReader().receive(link.sent[0])
    assert answer.id == ACCEPTOR_IDS_FROM
    assert decode_answer(WriteMarkers, answer.body) == [ErrorCode.NONE]
