"""What the largest steps of a shard's loop take, in ms: `python -m bench.steps`.

Nothing may hold the loop for more than about ten milliseconds. Work proportional to a client's
bytes is bounded in bytes; here each step runs at its bound, with words of random letters as
records. The time is that of this core, the median of some rounds. Who asks for Metadata of 10,000
topics is limited by the rules of `bench.rules`; the longest step of the answer counts.
"""

import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from statistics import median
from typing import NamedTuple
from uuid import UUID

import numpy as np

from bench.rules import CLIENT, HOST, rules
from gateway.apis.metadata import AnswerTerms, answer
from gateway.apis.table import API_BY_KEY
from gateway.parts import Parts, taken
from smq.model.catalog import Catalog, Node, Topic
from smq.security.authorizer import Authorizer
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.shard.client_metrics import INFLATED_BYTES_MAX
from smq.shard.recompression import BYTES_MAX, Compression, recompressed
from smq.wire.codec import Writer
from smq.wire.compression import Codec, compress, decompress
from smq.wire.generated.apis import METADATA
from smq.wire.generated.metadata import MetadataRequest, MetadataResponse
from smq.wire.headers import RequestHeader
from smq.wire.legacy.records import WRAPPER_BYTES_MAX
from smq.wire.records import Record, write_batch

ROUNDS = 9
RECORD_BYTES = 1024
LZ4_SLOWEST = 12
INFLATED = BYTES_MAX[Codec.NONE][0]
BATCH_ROOM = 0.97  # Of a bound: keys, offsets and lengths take the rest.
TOPICS, METADATA_VERSION = 10_000, 12
WORDS, LETTERS = 5000, "abcdefghijklmnopqrstuvwxyz"


def text(size: int) -> bytes:
    """Words of random letters, from a vocabulary."""
    chance = Random(1)  # noqa: S311
    words = ["".join(chance.choices(LETTERS, k=chance.randint(2, 9))) for _ in range(WORDS)]
    return " ".join(chance.choices(words, k=size // 5)).encode()[:size]


def batch(size: int) -> np.ndarray:
    """A batch that was sent uncompressed, of this many bytes."""
    whole = text(int(size * BATCH_ROOM))
    records = [
        Record(number, 0, None, whole[at : at + RECORD_BYTES])
        for number, at in enumerate(range(0, len(whole), RECORD_BYTES))
    ]
    return np.frombuffer(write_batch(records), np.uint8)


def took_ms(step: Callable[[], object]) -> float:
    """The median of some rounds, after one that warms up."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.thread_time()
        step()
        times.append(time.thread_time() - began)
    return 1000 * median(times[1:])


class Asker(NamedTuple):
    """Who asks for Metadata."""

    rights: Rights


def metadata_took_ms(principal: str) -> float:
    """The longest step of Metadata of all topics for a client that rules limit: the median."""
    names = (f"bench-{number:05}" for number in range(TOPICS))
    topics = [Topic(name, UUID(int=i + 1), (i + 1,), (0,)) for i, name in enumerate(names)]
    catalog, nodes = Catalog("bench", 1, {each.name: each for each in topics}), [Node(1, "a", 1, 1)]
    asker = Asker(Rights(Authorizer(Rules(rules())), Peer(Principal.parse(principal), HOST)))
    api, header = API_BY_KEY[METADATA.key], RequestHeader(METADATA.key, METADATA_VERSION, 1, "")
    writer = Writer()
    METADATA.write_request(MetadataRequest(topics=None), METADATA_VERSION, writer)
    body = writer.to_bytes()

    def handle(request: MetadataRequest, by: Asker) -> Iterator[MetadataResponse]:
        terms = AnswerTerms(METADATA_VERSION, by.rights, {}, creates=False)
        return answer(request, catalog, nodes, terms)

    def longest_ms() -> float:
        began, times = time.thread_time(), list[float]()
        parts = taken(api, header, (body, 0), handle, asker)
        assert isinstance(parts, Parts)
        is_done = False
        while not is_done:
            if is_done := parts.step():
                parts.written().framed()
            ended = time.thread_time()
            times.append(ended - began)
            began = ended
        return 1000 * max(times)

    longest_ms()
    return median(longest_ms() for _ in range(ROUNDS))


def lines() -> Iterator[tuple[str, float]]:
    """Each step at its bound."""
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        levels = [*BYTES_MAX[codec], *([LZ4_SLOWEST] if codec == Codec.LZ4 else [])]
        for wanted in (Compression(codec, level) for level in levels):
            sent = batch(wanted.bytes_max)
            assert recompressed(sent, wanted) is not None
            name = f"compression.type={codec.name.lower()} at level {wanted.level}"
            took = took_ms(partial(recompressed, sent, wanted))
            yield f"{name}: a batch of {wanted.bytes_max >> 10} KiB", took
    for name, size in (
        ("legacy.formats: a gzip message", WRAPPER_BYTES_MAX),
        ("PushTelemetry by gzip", INFLATED_BYTES_MAX),
    ):
        packed = zlib.compress(text(size), wbits=31)
        step = partial(decompress, Codec.GZIP, packed, size)
        yield f"{name} of {size >> 10} KiB inflated", took_ms(step)
    packed = compress(Codec.GZIP, text(INFLATED))
    what = f"compression.type=uncompressed: {INFLATED >> 10} KiB inflated from gzip"
    yield what, took_ms(partial(decompress, Codec.GZIP, packed, INFLATED))
    for principal, sees in ((CLIENT, "sees all"), ("User:u1", "sees some")):
        what = f"Metadata of {TOPICS:,} topics, with 10,000 rules, for a client that {sees}"
        yield what, metadata_took_ms(principal)


def main() -> None:
    """See above."""
    for what, ms in lines():
        print(f"{ms:8.2f} ms   {what}")


if __name__ == "__main__":
    main()
