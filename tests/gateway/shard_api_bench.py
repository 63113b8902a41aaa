"""A shard's APIs without a process: requests and answers as bytes, over logs in memory."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gateway.context import Ask, Later, Message, Relay, Wait
from gateway.dispatch import Dispatched, dispatch, encode
from gateway.parts import Parts
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.security.caller import Caller
from smq.shard.loans import Loan
from smq.shard.shard import Shard
from tests.gateway.coordinator_bench import decoded, finished, relayed
from tests.shard.shard_bench import NODES, NOW, Appender, catalog, new_log

EPOCH = 5  # The generation of the logs that a bench has made.


def sent(asked: Dispatched, known: Callable[[Any], Any] | None = None) -> bytes:
    """The bytes of an answer as a socket takes them, size first; gives back what is lent.

    `known` finds out what a part of it waits for.
    """
    if isinstance(asked.result, Parts):
        return joined(finished(asked.result, known).framed())
    return joined(encode(asked.api, asked.header, asked.result))


def joined(pieces: Iterable[Any]) -> bytes:
    """The bytes of pieces that are sent one after another."""
    data = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            data += piece
            continue
        lent: Any = piece
        while True:
            offered = b"".join(lent.next_buffers())
            if not offered:
                lent.load(lambda: None)
                continue
            data += offered
            if lent.advance(len(offered)):
                break
        lent.release()
    return data


class ShardBench:
    """A shard that leads all partitions in log 0, at epoch EPOCH or what is given."""

    def __init__(
        self, directory: Path, *topics: Topic, config: Config | None = None, epoch: int = EPOCH
    ) -> None:
        log = new_log(directory, generation=epoch)
        self.shard = Shard(1, config or Config(), {0: log}, lambda _: NODES, bytes(16))
        self.shard.take_catalog(catalog(*topics), 1)
        self.appender = Appender(self.shard)
        self.later_count, self.loan, self.caller = 0, Loan(), Caller("10.0.0.9")

    def ask(self, name: str, version: int, request: Any) -> Any:
        """The response as a client reads it; or Ask, of the sealer, Wait or Relay."""
        question = relayed(name, version, request).request
        asked = dispatch(question, self.shard, NOW, self.caller, self.loan)
        self.asked = asked._replace(result=self.known(asked.result))
        if isinstance(self.asked.result, (Ask, Wait, Relay)):
            return self.asked.result
        return self.read(self.asked.result)

    def read(self, response: Message) -> Any:
        """A response to the last request, as its client reads it."""
        asked = self.asked._replace(result=self.known(response))
        data = sent(asked, self.known)
        self.loan.release()
        assert int.from_bytes(data[:4]) == len(data) - 4
        return decoded(asked.api.name, asked.header.api_version, data[4:])

    def known(self, result: Any) -> Any:
        """A result once all is done that is not the sealer's; it notes how much that was."""
        while isinstance(result, Ask) and all(isinstance(each, Later) for each in result.questions):
            answers: list[Any] = []
            for each in result.questions:
                assert isinstance(each, Later)
                each.begin(answers.append)
            self.later_count += len(answers)
            result = result.then(answers)
        return result
