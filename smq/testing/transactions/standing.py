"""Describes where copying programs and their partitions stand, for the report of a stall."""

from collections.abc import Iterable

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import committed_offsets
from smq.client.kafka.offsets import LATEST, READ_COMMITTED, resolve
from smq.testing.transactions.copier import MIDDLE, SOURCE, TARGET, Task


def standing(bootstrap: str, tasks: Iterable[Task]) -> list[str]:
    """A line per partition and program. Raises BrokerError.

    If the end is beyond the last stable offset, an open transaction holds readers back; a program
    whose offsets are below the last stable ones has records to read.
    """
    lines = []
    with Cluster(bootstrap) as cluster:
        for topic in (SOURCE, MIDDLE, TARGET):
            numbers = range(len(cluster.topic(topic).leaders))
            ends = resolve(cluster, topic, numbers, LATEST)
            stable = resolve(cluster, topic, numbers, LATEST, isolation_level=READ_COMMITTED)
            lines += [f"{topic}-{n} ends at {ends[n]}, stable to {stable[n]}" for n in numbers]
        for program, task in {task.program: task for task in tasks}.items():
            known = committed_offsets(cluster, task.name)
            places = [f"{name}-{number} {offset}" for (name, number), offset in known.items()]
            told = ", ".join(sorted(places)) or "nothing"
            lines.append(f"program {program} ({task.client}) has committed {told}")
    return lines
