"""The report on partitions and programs when progress stops."""

from pathlib import Path

from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker
from smq.testing.transactions.copier import MIDDLE, SOURCE, TARGET, Task
from smq.testing.transactions.standing import standing


def test_an_open_transaction_shows_in_the_partition_that_it_holds_back(tmp_path: Path) -> None:
    task = Task(2, 1, "smq", 1, 0, "notes", 7)
    with SmqBroker(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for topic in (SOURCE, MIDDLE, TARGET):
                create_topic(cluster, topic, 1)
        with broker.connect() as client, client.producer(transactional_id=task.name) as producer:
            with producer.transaction() as transaction:
                producer.send(MIDDLE, b"committed", partition=0)
                transaction.commit_offsets(task.name, {(SOURCE, 0): 5})
            with producer.transaction():
                producer.send(MIDDLE, b"open", partition=0)
                producer.flush()
                told = standing(broker.bootstrap, [task])
    assert told == [
        "source-0 ends at 0, stable to 0",
        "middle-0 ends at 3, stable to 2",
        "target-0 ends at 0, stable to 0",
        "program 2 (smq) has committed source-0 5",
    ]
