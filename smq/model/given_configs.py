"""The configs that a topic is given: checked, and written as Kafka writes them."""

from collections.abc import Mapping

from smq.model.config import FRAME_OVERHEAD_BYTES, Config
from smq.model.config_values import Value, parsed, written
from smq.model.topic_configs import TOPIC_CONFIGS

_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


def parse(name: str, text: str) -> Value:
    """The value of a config. Raises ValueError with a sentence in Kafka's words."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise ValueError(f"Unknown topic config name: {name}")
    try:
        value = parsed(config.type, text)
    except ValueError as reason:
        raise ValueError(f"Invalid value {text} for configuration {name}: {reason}") from None
    problem = config.rule(value)
    if problem:
        raise ValueError(f"Invalid value {text} for configuration {name}: {problem}")
    return value


def understood(
    configs: Mapping[str, str | None], broker: Config, before: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A topic's configs, each as it is written. Raises ValueError with a sentence.

    What the topic has had `before` stays, even a value that is refused by now.
    """
    nulls = [name for name, text in configs.items() if text is None]
    if nulls:
        raise ValueError(f"Null value not supported for topic configs: {','.join(nulls)}")
    kept = before or {}
    own = {
        name: text if text == kept.get(name) else _understood(name, text, broker)
        for name, text in configs.items()
        if text is not None
    }
    lags = {name: own.get(name) for name in _LAGS}
    if any(lags[name] != kept.get(name) for name in _LAGS):
        least, most = (int(text or TOPIC_CONFIGS[name].default) for name, text in lags.items())
        if least > most:
            raise ValueError(
                f"conflict topic config setting min.compaction.lag.ms ({least}) > "
                f"max.compaction.lag.ms ({most})"
            )
    return own


def _understood(name: str, text: str, broker: Config) -> str:
    value = parse(name, text)
    if name == "max.message.bytes" and int(value) > batch_bytes_max(broker):
        raise ValueError(
            f"Invalid value {text} for configuration {name}: a batch must fit in half a "
            f"ring and in a WAL segment, {batch_bytes_max(broker)} bytes; raise ring.bytes"
        )
    if name == "cleanup.policy":
        return ",".join(dict.fromkeys(str(value).split(",")))
    return written(value)


def batch_bytes_max(broker: Config) -> int:
    """The largest batch that any topic may allow."""
    return min(broker.wal_segment_bytes, broker.ring_bytes // 2) - FRAME_OVERHEAD_BYTES
