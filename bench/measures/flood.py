"""A flood through librdkafka, and all of it read back: `python -m bench.run --only flood`.

Records of 1 KiB, half random, in batches of 1 MB, as fast as the client can; each fifth of the
flood on its own, the slowest second, then a consumer from the earliest offset.
"""

from bench.clients.programs import librdkafka
from bench.measures.lines import Figures, Line, Measure, topic
from smq.testing.processes import Broker

FLOOD = "flood"
GB = 1e9
RECORD_BYTES = 1024
FIFTHS = 5
CLIENT = {"batch_size": 1_000_000, "batch_num_messages": 1000, "linger_ms": 5}
READER = {"fetch_message_max_bytes": 8 << 20, "fetch_max_bytes": 50 << 20}


def flood_measure(gigabytes: float) -> Measure:
    """A flood of so many GB; it takes about twice that of the disk, for each broker in turn."""
    records = int(gigabytes * GB / RECORD_BYTES) // FIFTHS * FIFTHS

    def run(broker: Broker) -> Figures:
        with topic(broker) as name:
            figures = librdkafka(
                broker.bootstrap, "flood", topic=name, records=records,
                record_bytes=RECORD_BYTES, **CLIENT,
            )  # fmt: skip
            figures["slowest_of_median"] = figures["slowest_second"] / figures["median_second"]
            read = librdkafka(broker.bootstrap, "consume", topic=name, records=records, **READER)
        return figures | {"read_mb_s": read["mb_s"]}

    name = f"{FLOOD} of {gigabytes:g} GB, 1 KiB, librdkafka"
    fifths = (Line(f"fifth {i}, MB/s", f"fifth_{i}", "") for i in range(1, FIFTHS + 1))
    lines = (
        *fifths,
        Line("whole, MB/s", "mb_s", "≥ 1.3"),
        Line("slowest second, of its median", "slowest_of_median", ""),
        Line("read from the earliest, MB/s", "read_mb_s", "≥ 1.0"),
    )
    return Measure(name, run, lines)
