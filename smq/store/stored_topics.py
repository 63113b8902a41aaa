"""The topics as the store has them, for any process that may read it."""

from uuid import UUID

from smq.model.catalog import Topic
from smq.model.errors import StoreError
from smq.model.names import is_valid_topic_name
from smq.store.database import Database
from smq.store.deleted_topics import NAMESPACE as DELETED
from smq.store.leaderships import moved_partitions


def stored_topics(database: Database) -> list[Topic]:
    """Every topic, sorted by namespace and name. Raises StoreError."""
    partitions: dict[str, list[tuple[int, int]]] = {}
    for topic_id, number, log in database.rows(
        "SELECT topic_id, number, log FROM partitions ORDER BY topic_id, partition"
    ):
        partitions.setdefault(topic_id, []).append((number, log))
    configs: dict[str, dict[str, str]] = {}
    for topic_id, name, value in database.rows("SELECT * FROM configs"):
        configs.setdefault(topic_id, {})[name] = value
    moves = moved_partitions(database)
    topics = []
    for topic_id, namespace, name in database.rows(
        "SELECT id, namespace, name FROM topics WHERE namespace != ? ORDER BY namespace, name",
        (DELETED,),
    ):
        if not (is_valid_topic_name(name) and is_valid_topic_name(namespace)):
            raise StoreError("store.sqlite", f"{namespace}/{name!r} is no topic's name")
        numbers, logs = zip(*partitions[topic_id], strict=True)
        own, moved = configs.get(topic_id, {}), moves.get(topic_id, {})
        topics.append(Topic(name, UUID(hex=topic_id), numbers, logs, own, namespace, moved))
    return topics
