"""What a Fetch costs that its kernel has left, and how much of that decodes its body:
`python -m tests.gateway.fetch.left_fetch_cost`. CPU time, the median of some rounds."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from gateway.apis.table import API_BY_KEY
from gateway.dispatch import dispatch
from shm.kernels.request.fetch import FETCH_KEY
from smq.shard.loans import Loan
from smq.wire.generated.fetch import FetchPartition
from smq.wire.headers import read_request_header
from tests.gateway.coordinator_bench import relayed
from tests.gateway.fetch.asking import LARGE_BYTES, fetch, wanted
from tests.gateway.shard_api_bench import ShardBench, sent
from tests.shard.shard_bench import NOW, batch, topic

ROUNDS = 300
VERSION = 12


def took_us(action: Callable[[], object]) -> float:
    """The CPU time of an action, in µs."""
    times = list[int]()
    for _ in range(ROUNDS):
        began_ns = time.process_time_ns()
        action()
        times.append(time.process_time_ns() - began_ns)
    return median(times) / 1000


def costs(partitions: int, directory: Path) -> tuple[float, float]:
    """Of a Fetch of a record from each of these partitions: all of it, and decoding its body."""
    bench = ShardBench(directory, topic("t", range(1, 1 + partitions)))
    for number in range(partitions):
        bench.appender.append("t", number, batch(b"x" * 100))
    asked = [
        FetchPartition(partition=number, partition_max_bytes=LARGE_BYTES)
        for number in range(partitions)
    ]
    request = relayed("Fetch", VERSION, fetch(wanted("t", *asked), max_bytes=LARGE_BYTES)).request
    _, body = read_request_header(request, 0)

    def whole() -> None:
        loan = Loan()
        sent(dispatch(request, bench.shard, NOW, loan=loan))
        loan.release()

    decode = API_BY_KEY[FETCH_KEY].read_request
    return took_us(whole), took_us(lambda: decode(request, body, VERSION))


def main() -> None:
    """See above."""
    for partitions in (1, 20, 100):
        with tempfile.TemporaryDirectory() as directory:
            whole_us, decode_us = costs(partitions, Path(directory))
        share = decode_us / whole_us
        shown = f"{decode_us:5.1f} of {whole_us:7.1f} µs decode the body ({share:.0%})"
        print(f"{partitions:4} partitions: {shown}")  # noqa: T201


if __name__ == "__main__":
    main()
