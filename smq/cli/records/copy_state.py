"""The file that makes a copy resumable: corresponding offsets of both topics, by partition.

    {"version": 3, "source": NAME, "destination": NAME, "producer": [ID, EPOCH],
     "partitions": {"0": [SOURCE, DESTINATION, BEGAN, [[DESTINATION, SOURCE], ...], EPOCH]}}

It is written before anything is sent, with all that is sent next: so the destination ends where one
of its pairs says, and the source's offset there is known whatever becomes of its records. A name
has the topic's id: one that was created again is another topic.

A file that a power loss has taken back is as valid as long as only the copy writes to the
destination: everything above the pair was copied in the source's order, and is counted. So it need
not be synced. Version 1 has no more than the first pair, and names without ids; version 2 no epoch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from smq.cli.client import refusal
from smq.cli.records.raw_batches import ProducerIdentity
from smq.model.named_files import read_named

VERSION = 3
FILE_BYTES_MAX = 64 * 1024 * 1024  # That of a topic with many partitions.


class ClusterTopic(NamedTuple):
    """A topic of a cluster."""

    cluster_id: str
    topic: str
    topic_id: str

    def of_version(self, version: int) -> str:
        """How a state of this version says it."""
        return "/".join(self[:2] if version == 1 else self)


class CopiedPartition(NamedTuple):
    """What is known of a partition: corresponding offsets, see Lane for the others."""

    source: int
    destination: int
    began: int
    under_way: Sequence[tuple[int, int]] = ()
    epoch: int = -1

    def place(self, end: int) -> tuple[int, int]:
        """The source's offset that corresponds to the destination's end, or one before it and how
        many records lie between."""
        found = dict(self.under_way).get(end)
        return (self.source, end - self.destination) if found is None else (found, 0)


class State(NamedTuple):
    """The content of the file."""

    partitions: Mapping[int, CopiedPartition] = {}
    producer: ProducerIdentity | None = None


def read_state(path: Path, source: ClusterTopic, destination: ClusterTopic) -> State:
    """What a file says; nothing if it does not exist. Refuses the file of a different copy."""
    try:
        found = json.loads(read_named(path, FILE_BYTES_MAX))
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise refusal(f"{path} is not the state of a copy: {error}") from error
    version = found.get("version") if isinstance(found, dict) else None
    if version not in {1, 2, VERSION}:
        raise refusal(f"{path} is not the state of a copy by this version")
    names = source.of_version(version), destination.of_version(version)
    if (found.get("source"), found.get("destination")) != names:
        raise refusal(
            f"{path} is the state of another copy: {found.get('source')} to "
            f"{found.get('destination')}, and not {' to '.join(names)} (cluster, topic, and its "
            "id, which changes when it is created again)"
        )
    try:
        partitions = {int(number): _known(*row) for number, row in found["partitions"].items()}
        producer = found.get("producer")
        return State(partitions, producer and ProducerIdentity(*map(int, producer)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refusal(f"{path} is damaged; remove it to start over") from error


def _known(  # (as they were read)
    source: Any,  # noqa: ANN401
    destination: Any,  # noqa: ANN401
    began: Any = None,  # noqa: ANN401
    under_way: Any = (),  # noqa: ANN401
    epoch: Any = -1,  # noqa: ANN401
) -> CopiedPartition:
    pairs = [(int(after), int(next_)) for after, next_ in under_way]
    began = destination if began is None else began
    return CopiedPartition(int(source), int(destination), int(began), pairs, int(epoch))


def write_state(path: Path, source: ClusterTopic, destination: ClusterTopic, state: State) -> None:
    """Replace the file atomically."""
    content = {
        "version": VERSION,
        "source": source.of_version(VERSION),
        "destination": destination.of_version(VERSION),
        "producer": state.producer,
        "partitions": {str(number): known for number, known in state.partitions.items()},
    }
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(json.dumps(content) + "\n")
        new.replace(path)
    except OSError as error:
        raise refusal(f"{path} cannot be written: {error.strerror}") from error
