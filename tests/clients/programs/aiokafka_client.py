"""aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.clients.programs.contract import Task, is_wrong, record, report, run
from tests.clients.programs.logins import python_options


async def read(task: Task, count: int) -> tuple[list[str], int]:
    consumer = AIOKafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        **python_options(),
    )
    values: list[str] = []
    wrong = 0
    async with consumer:
        while len(values) < count:
            message = await consumer.getone()
            values.append(message.value.decode())
            wrong += is_wrong(message.key, message.value, message.headers)
        await consumer.commit()
    return values, wrong


async def produce_and_read(task: Task) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap, compression_type="snappy", acks="all", **python_options()
    )
    async with producer:
        for number in range(task.records):
            key, value = record(number)
            await producer.send(task.topic, value, key, headers=[("n", value)])
    first, wrong_of_first = await read(task, task.half)
    second, wrong_of_second = await read(task, task.records - task.half)
    report(first=first, second=second, wrong=wrong_of_first + wrong_of_second)


def resume(task: Task) -> None:
    asyncio.run(produce_and_read(task))


def only_read(task: Task) -> None:
    values, wrong = asyncio.run(read(task, task.records))
    report(values=values, wrong=wrong)


if __name__ == "__main__":
    run(resume=resume, read=only_read)
