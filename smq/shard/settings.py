"""A topic's settings as its partitions' rows hold them."""

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_MEMORY, DURABILITY_OS
from smq.log.partitions import PartitionSettings
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.topic_configs import TopicSettings
from smq.shard.inline import delivers_inline
from smq.shard.validation import looks_into

_LEVELS = {"memory": DURABILITY_MEMORY, "os": DURABILITY_OS, "disk": DURABILITY_DISK}


def settings_of(topic: Topic, config: Config) -> PartitionSettings:
    """A topic's configuration as the log uses it."""
    settings = TopicSettings.of(topic.configs, config)
    return PartitionSettings(
        durability=_LEVELS[settings.durability],
        batch_bytes_max=settings.message_bytes_max,
        log_append_time=settings.log_append_time,
        delivers_inline=delivers_inline(topic),
        looks_into=looks_into(topic, config),
        timestamp_before_max_ms=settings.timestamp_before_max_ms,
        timestamp_after_max_ms=settings.timestamp_after_max_ms,
    )
