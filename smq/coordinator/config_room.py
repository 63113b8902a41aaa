"""The room of topics' configs in the published catalog.

Each change of a topic publishes the lines of all topics again, and every process reads them in one
turn of its loop: some 3 ms a megabyte, and as much again to write them. Names and partitions are
bounded by the logs. So one topic's configs are bounded here, and what all topics have beyond the
usual few settings.
"""

import json
from collections.abc import Mapping

from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.topic_configs import RECORD_TYPE, SCHEMA

TOPIC_BYTES_MAX = 16 * 1024  # Half of the longest value: no setting that is in use needs as much.
SHORT_BYTES = 256  # Some six ordinary settings, which every topic may have.
LONG_BYTES_MAX = 4 * 1024 * 1024  # Two thousand schemas of 2 KiB.
_HAVE_BOUNDS_OF_THEIR_OWN = {SCHEMA, RECORD_TYPE}
_NAMED = 3


class ConfigRoom:
    """The bytes that long configs take, as published, of all topics that count() was told of."""

    def __init__(self) -> None:
        self._bytes = 0

    def check(self, topic: Topic, before: Topic | None) -> None:
        """Refuse a topic whose configs are too large. What an earlier version took stays, may
        shrink, and may have other ordinary settings. `before`: the topic that it replaces. Raises
        BrokerError."""
        if before is not None and before.configs == topic.configs:
            return
        size = _size(_others(topic))
        if size > TOPIC_BYTES_MAX and not _is_no_worse(topic, before):
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"A topic's configs, without {SCHEMA} and {RECORD_TYPE}, may take "
                f"{TOPIC_BYTES_MAX} bytes; these take {size}.",
            )
        grown = _long_bytes(topic) - (_long_bytes(before) if before else 0)
        if grown > 0 and self._bytes + grown > LONG_BYTES_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"What the configs of topics take beyond {SHORT_BYTES} bytes each may be "
                f"{LONG_BYTES_MAX} bytes in all: shorten or delete some first.",
            )

    def count(self, topic: Topic, sign: int) -> None:
        """There is one more topic, or one less."""
        self._bytes += sign * _long_bytes(topic)

    def problem(self, topics: Mapping[str, Topic]) -> str:
        """A sentence about more than is taken by now; "" if there is less. `topics`: all."""
        if self._bytes <= LONG_BYTES_MAX:
            return ""
        longest = sorted(topics.values(), key=_long_bytes, reverse=True)[:_NAMED]
        return (
            f"long configs of topics take {self._bytes} bytes, and {LONG_BYTES_MAX} are allowed: "
            "each change of a topic holds up every process. Shorten or delete some, as those of "
            + ", ".join(repr(topic.name) for topic in longest)
        )


def _is_no_worse(topic: Topic, before: Topic | None) -> bool:
    """Whether a topic was too large before, and its long settings take no more than they did: of
    short ones there are as many as there are names."""
    if before is None or _size(_others(before)) <= TOPIC_BYTES_MAX:
        return False
    now, then = (
        _size({name: text for name, text in _others(each).items() if len(text) > SHORT_BYTES})
        for each in (topic, before)
    )
    return now <= then


def _others(topic: Topic) -> dict[str, str]:
    return {
        name: text for name, text in topic.configs.items() if name not in _HAVE_BOUNDS_OF_THEIR_OWN
    }


def _long_bytes(topic: Topic) -> int:
    return max(0, _size(topic.configs) - SHORT_BYTES)


def _size(configs: Mapping[str, str]) -> int:
    """The bytes that configs take in a topic's line."""
    return len(json.dumps(dict(configs), separators=(",", ":")))
