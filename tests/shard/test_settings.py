"""A topic's settings, as its partitions' rows hold them."""

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_MEMORY, DURABILITY_OS
from smq.model.config import Config
from smq.shard.settings import partition_settings
from tests.shard.shard_bench import topic


def test_the_topic_s_durability_is_taken_or_else_the_broker_s() -> None:
    def level(config: Config, **configs: str) -> int:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return partition_settings(topic("t", configs=named), config).durability

    assert level(Config()) == DURABILITY_OS
    assert level(Config(durability="disk")) == DURABILITY_DISK
    assert level(Config(durability="disk"), smq_durability="memory") == DURABILITY_MEMORY


def test_limits_and_times_come_from_the_topic() -> None:
    configs = {
        "max.message.bytes": "1234",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "5",
        "message.timestamp.after.max.ms": "6",
    }
    settings = partition_settings(topic("t", configs=configs), Config())
    assert settings.batch_bytes_max == 1234
    assert settings.log_append_time
    assert (settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) == (5, 6)
