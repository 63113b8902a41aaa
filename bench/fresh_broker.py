"""What a fresh broker costs a test: `python -m bench.fresh_broker`.

The first one of a session pays for the warm process behind it; the others are what is promised.
"""

import statistics
import time

from smq.testing import broker

COUNT = 40


def main() -> None:
    """Print milliseconds until a broker serves, and until it is gone, for 1 and 4 shards."""
    print("| shards | first, ms | later: median; worst of 40, ms | gone: median, ms |")
    print("|---|---|---|---|")
    for shards in (1, 4):
        ready_ms, gone_ms = [], []
        for _ in range(1 + COUNT):
            began = time.perf_counter()
            with broker(shards=shards):
                ready = time.perf_counter()
                ready_ms.append(1000 * (ready - began))
                leaving = time.perf_counter()
            gone_ms.append(1000 * (time.perf_counter() - leaving))
        first, *later = ready_ms
        median = statistics.median(later)
        gone = statistics.median(gone_ms)
        print(f"| {shards} | {first:.0f} | {median:.0f}; {max(later):.0f} | {gone:.0f} |")


if __name__ == "__main__":
    main()
