"""How far lake tables lag behind their topics, from their states and the manifest."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from smq.front.metrics.facts import TableFacts
from smq.model.catalog import Topic
from smq.model.topic_configs import NO_TABLE
from smq.model.topic_settings import table_of
from smq.sealer.lake.state import TableState, states
from smq.store.manifest import Manifest


def table_facts(
    data_dir: Path, manifest: Manifest, topics: Iterable[Topic], wall_ms: int
) -> Iterator[TableFacts]:
    """Each table that a topic wants, and each that is still there. Raises StoreError."""
    found = {(each.namespace, each.topic, each.format): each for each in states(data_dir)}
    for topic in topics:
        kind = table_of(topic.configs)
        if kind != NO_TABLE:
            state = found.pop((topic.namespace, topic.name, kind), None)
            yield _facts(topic, kind, state, manifest, wall_ms)
    for state in found.values():
        yield TableFacts(
            state.topic,
            state.format,
            state.location,
            files=state.files,
            error=state.error or "its topic has no table any more: it will be dropped",
        )


def _facts(
    topic: Topic, kind: str, state: TableState | None, manifest: Manifest, wall_ms: int
) -> TableFacts:
    if state is None or state.topic_id != topic.id.hex:
        state = TableState(namespace=topic.namespace, topic=topic.name, format=kind)
    behind, oldest_ms = 0, wall_ms
    for partition, number in enumerate(topic.partition_numbers):
        end = max(state.ends.get(str(partition), 0), manifest.log_start(number))
        waiting = manifest.segments(number, end, count_max=1)
        if waiting:
            behind += manifest.sealed_end(number) - max(end, waiting[0].base_offset)
            oldest_ms = min(oldest_ms, waiting[0].committed_ms)
    return TableFacts(
        topic.name,
        kind,
        state.location,
        files=state.files,
        records_behind=behind,
        behind_s=(wall_ms - oldest_ms) / 1000,
        raw_records=state.raw_records,
        synced_ms=state.synced_ms,
        error=state.error,
        note=state.note,
    )
