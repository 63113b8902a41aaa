"""kafka-python of the time of message formats 0 and 1: `<bootstrap> <topic> <version> <count>`.

It believes in the version of the broker that it is told. It produces with each compression, commits
what it has read, and prints all values with their keys, and the offset that is committed.
"""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.programs.logins import python_options

RECORDS = 20  # Of each compression.
COMPRESSIONS = (None, "gzip", "snappy", "lz4")
SECONDS_MAX = 60


def main(bootstrap: str, topic: str, version: str, count: str) -> None:
    told = tuple(map(int, version.split(".")))
    for compression in COMPRESSIONS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, api_version=told, compression_type=compression,
            acks="all", linger_ms=20, **python_options(),
        )  # fmt: skip
        for number in range(RECORDS):
            key = None if number % 2 else b"k"
            producer.send(topic, f"{compression}-{number}".encode(), key)
        producer.flush(SECONDS_MAX)
        producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, api_version=told, group_id=f"old-{version}",
        auto_offset_reset="earliest", enable_auto_commit=False,
        consumer_timeout_ms=SECONDS_MAX * 1000, max_poll_records=1, **python_options(),
    )  # fmt: skip
    rows: list[tuple[str, bool]] = []
    for message in consumer:
        rows.append((message.value.decode(), message.key is not None))
        if len(rows) == int(count):
            break
    consumer.commit()
    committed = consumer.committed(TopicPartition(topic, 0))
    consumer.close()
    sys.stdout.write(json.dumps({"rows": rows, "committed": committed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
