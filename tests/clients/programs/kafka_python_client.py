"""kafka-python."""

from kafka import KafkaConsumer, KafkaProducer

from tests.clients.programs.contract import Task, is_wrong, record, report, run
from tests.clients.programs.logins import python_options


def read(task: Task, count: int) -> tuple[list[str], int]:
    consumer = KafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap.split(","),
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=1,
        **python_options(),
    )
    values: list[str] = []
    wrong = 0
    for message in consumer:
        values.append(message.value.decode())
        wrong += is_wrong(message.key, message.value, message.headers)
        if len(values) == count:
            break
    consumer.commit()
    consumer.close()
    return values, wrong


def resume(task: Task) -> None:
    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap.split(","),
        compression_type="gzip",
        acks="all",
        **python_options(),
    )
    for number in range(task.records):
        key, value = record(number)
        producer.send(task.topic, value, key, headers=[("n", value)])
    producer.flush(30)
    producer.close()
    first, wrong_of_first = read(task, task.half)
    second, wrong_of_second = read(task, task.records - task.half)
    report(first=first, second=second, wrong=wrong_of_first + wrong_of_second)


def only_read(task: Task) -> None:
    values, wrong = read(task, task.records)
    report(values=values, wrong=wrong)


if __name__ == "__main__":
    run(resume=resume, read=only_read)
