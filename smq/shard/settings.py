"""A topic's settings as its partitions' rows hold them."""

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_MEMORY, DURABILITY_OS
from smq.log.partitions import PartitionSettings
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.topic_settings import settings_of

_LEVELS = {"memory": DURABILITY_MEMORY, "os": DURABILITY_OS, "disk": DURABILITY_DISK}


def partition_settings(topic: Topic, config: Config) -> PartitionSettings:
    """A topic's configuration as the log uses it."""
    settings = settings_of(topic, config)
    return PartitionSettings(
        durability=_LEVELS[settings.durability],
        batch_bytes_max=settings.message_bytes_max,
        log_append_time=settings.log_append_time,
        delivers_inline=settings.delivers_inline,
        looks_into=settings.looks_into,
        timestamp_before_max_ms=settings.timestamp_before_max_ms,
        timestamp_after_max_ms=settings.timestamp_after_max_ms,
    )
