"""confluent-kafka, that is librdkafka."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import cast

from confluent_kafka import Consumer, Producer

from tests.clients.programs.contract import (
    PAUSE_SECONDS,
    Task,
    halfway,
    is_wrong,
    login,
    record,
    report,
    run,
)


def member(task: Task) -> Consumer:
    consumer = Consumer(
        login()
        | {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([task.topic])
    return consumer


def read(consumer: Consumer, enough: Callable[[list[str]], bool]) -> tuple[list[str], int]:
    """Read until it is enough; commits nothing."""
    values: list[str] = []
    wrong = 0
    while not enough(values):
        message = consumer.poll(1)
        if message is None or message.error():
            continue
        value = message.value() or b""
        values.append(value.decode())
        wrong += is_wrong(
            message.key(), value, cast("list[tuple[str, bytes]]", message.headers() or [])
        )
    return values, wrong


def has(count: int, values: list[str]) -> bool:
    return len(values) == count


def resume(task: Task) -> None:
    producer = Producer(login() | {"bootstrap.servers": task.bootstrap, "compression.type": "lz4"})
    for number in range(task.records):
        key, value = record(number)
        producer.produce(task.topic, value, key, headers={"n": value})
    assert producer.flush(30) == 0
    halves, wrong = [], 0
    for count in (task.half, task.records - task.half):
        consumer = member(task)
        enough = partial(has, count)
        values, bad = read(consumer, enough)
        consumer.commit(asynchronous=False)
        consumer.close()
        halves.append(values)
        wrong += bad
    report(first=halves[0], second=halves[1], wrong=wrong)


def only_read(task: Task) -> None:
    consumer = member(task)
    values, wrong = read(consumer, partial(has, task.records))
    consumer.close()
    report(values=values, wrong=wrong)


def through_a_kill(task: Task) -> None:
    producing = threading.Thread(target=produce_slowly, args=(task,), daemon=True)
    producing.start()
    consumer = member(task)
    values, wrong = read(consumer, lambda values: len(set(values)) == task.records)
    producing.join()
    consumer.close()
    report(values=values, wrong=wrong)


def produce_slowly(task: Task) -> None:
    settings = login() | {
        "bootstrap.servers": task.bootstrap,
        "enable.idempotence": True,
        "compression.type": "zstd",
    }
    producer = Producer(settings)
    acknowledged = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acknowledged
        assert error is None, error
        acknowledged += 1
        if acknowledged == task.half:
            halfway()

    for number in range(task.records):
        key, value = record(number)
        producer.produce(task.topic, value, key, headers={"n": value}, on_delivery=delivered)
        producer.poll(0)
        time.sleep(PAUSE_SECONDS)
    assert producer.flush(60) == 0
    assert acknowledged == task.records


if __name__ == "__main__":
    run(resume=resume, read=only_read, through_a_kill=through_a_kill)
