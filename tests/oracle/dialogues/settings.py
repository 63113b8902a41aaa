"""Dynamic settings: of brokers, loggers, client metrics and groups."""

import time
from collections.abc import Mapping
from typing import Any

from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from smq.wire.generated.list_config_resources import ListConfigResourcesRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import SETTLE_SECONDS_MAX, Talk

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
ROOT = "root"


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


class Settings:
    """Changes settings in a dialogue, and looks at them."""

    def __init__(self, talk: Talk, kind: int) -> None:
        self._talk, self._kind = talk, kind

    def change(
        self, step: str, name: str, *changes: tuple[str, int, str | None], **fields: Any
    ) -> None:
        one = resource(self._kind, name, *changes)
        request = IncrementalAlterConfigsRequest(resources=[one], **fields)
        self._talk.ask(step, request)

    def quietly(self, name: str, *changes: tuple[str, int, str | None]) -> None:
        """Change it between two steps."""
        one = resource(self._kind, name, *changes)
        self._talk.quietly(IncrementalAlterConfigsRequest(resources=[one]), self._talk.version)

    def look(self, step: str, name: str, *keys: str, until: Mapping[str, str | None]) -> None:
        """Describe it once these values hold: Kafka's brokers learn them a little later."""
        one = DescribeConfigsResource(
            resource_type=self._kind, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(resources=[one], include_synonyms=True)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            answer = self._talk.quietly(request, 4)
            found = {each.name: each.value for each in answer.results[0].configs}
            if all(found.get(key) == value for key, value in until.items()):
                break
            assert time.monotonic() < deadline, f"{step}: {found}"
        self._talk.note(step, shown(answer.results[0]))


def shown(result: Any) -> Any:
    return {
        "error": result.error_code,
        "message": result.error_message,
        "configs": [
            [
                each.name,
                each.value,
                each.read_only,
                each.config_source,
                each.is_sensitive,
                each.config_type,
                [[like.name, like.value, like.source] for like in each.synonyms],
            ]
            for each in sorted(result.configs, key=lambda each: each.name)
        ],
    }


@dialogue("IncrementalAlterConfigs")
def of_brokers(talk: Talk) -> None:
    broker = Settings(talk, BROKER)
    ms, size = "log.retention.ms", "message.max.bytes"
    request = "socket.request.max.bytes"
    broker.change("a default of all", "", (size, SET, "1000000"))
    broker.look("it is the default of all", "", size, until={size: "1000000"})
    broker.look("and holds for a broker", "1", size, until={size: "1000000"})
    broker.change("one of a broker", "1", (size, SET, "900000"))
    broker.look("it has precedence", "1", size, until={size: "900000"})
    topic = talk.make_topic()
    topics = Settings(talk, TOPIC)
    topics.look("a topic has it", topic, "max.message.bytes", until={"max.message.bytes": "900000"})
    broker.change("a check", "", (size, SET, "1000001"), validate_only=True)
    broker.change("no longer of the broker", "1", (size, DELETE, None))
    broker.look("that of all holds", "1", size, until={size: "1000000"})
    broker.change("what is not set", "1", (size, DELETE, None))
    broker.change("no longer of all", "", (size, DELETE, None))
    broker.look("the default holds", "1", size, until={size: "1048588"})
    broker.change("retention", "", (ms, SET, "86400000"))
    broker.look("before what the start has set", "1", ms, until={ms: "86400000"})
    topics.look("a topic's too", topic, "retention.ms", until={"retention.ms": "86400000"})
    broker.change("no retention", "", (ms, DELETE, None))
    broker.look("as the start has set it", "1", ms, until={ms: "-1"})
    broker.change("a bad value", "", (size, SET, "many"))
    broker.change("a value that is too small", "", (size, SET, "-5"))
    broker.change("a bad value for a broker", "1", (size, SET, "many"))
    broker.change("a null value", "", (size, SET, None))
    broker.change("a setting twice", "", (size, SET, "1"), (size, SET, "2"))
    broker.change("appended to a number", "", (size, APPEND, "1"))
    broker.change("a read-only setting of all", "", ("broker.rack", SET, "1"))
    broker.change("a read-only setting", "1", (request, SET, "600000"))
    broker.change("two read-only settings", "1", (request, SET, "600000"), ("node.id", SET, "1"))
    broker.change(
        "a good and a read-only one", "", (size, SET, "1000000"), (request, SET, "600000")
    )
    broker.change("to delete a read-only one", "1", (request, DELETE, None))
    broker.change("an unknown setting", "", ("no.such.thing", SET, "1"))
    broker.change("to delete an unknown setting", "", ("no.such.thing", DELETE, None))
    broker.change("nothing", "")
    broker.look("nothing is left", "", size, until={size: None})


@dialogue("IncrementalAlterConfigs")
def of_loggers(talk: Talk) -> None:
    logger = Settings(talk, LOGGER)
    logger.change("a level", "1", (ROOT, SET, "ERROR"))
    logger.look("it is set", "1", ROOT, until={})
    logger.change("a check", "1", (ROOT, SET, "DEBUG"), validate_only=True)
    logger.change("another", "1", (ROOT, SET, "WARN"))
    logger.look("it is set again", "1", ROOT, until={})
    logger.change("a level that is none", "1", (ROOT, SET, "LOUD"))
    logger.change("in small letters", "1", (ROOT, SET, "warn"))
    logger.change("to delete the root's", "1", (ROOT, DELETE, None))
    logger.change("appended", "1", (ROOT, APPEND, "WARN"))
    logger.change("a null value", "1", (ROOT, SET, None))
    logger.change("an unknown logger", "1", ("no.such.logger", SET, "WARN"))
    logger.change("to delete an unknown logger's", "1", ("no.such.logger", DELETE, None))
    logger.change("twice", "1", (ROOT, SET, "WARN"), (ROOT, SET, "ERROR"))
    logger.change("all brokers", "", (ROOT, SET, "WARN"))
    logger.change("broker 99", "99", (ROOT, SET, "WARN"))
    logger.change("a broker that is no number", "x", (ROOT, SET, "WARN"))
    logger.look("an unknown one", "1", "no.such.logger", until={})
    logger.look("of no broker", "", ROOT, until={})
    logger.look("of broker 99", "99", ROOT, until={})
    logger.look("of a broker that is no number", "x", ROOT, until={})


@dialogue("IncrementalAlterConfigs")
def of_client_metrics(talk: Talk) -> None:
    metrics = Settings(talk, CLIENT_METRICS)
    name = "subscription" + str(talk.version)
    every, what, match = "interval.ms", "metrics", "match"
    metrics.look("one that is not there", name, until={})
    metrics.change("an interval", name, (every, SET, "100"))
    metrics.look("it is there", name, until={every: "100"})
    metrics.change("metrics", name, (what, SET, "org.apache.kafka.producer."))
    metrics.change("more metrics", name, (what, APPEND, "org.apache.kafka.consumer."))
    metrics.change("a match", name, (match, SET, "client_source_address=10.*,client_id=a.b"))
    full = {match: "client_source_address=10.*,client_id=a.b"}
    metrics.look("all of it", name, until=full)
    software = "client_software_name=apache.*"
    metrics.change("a match of software", name, (match, SET, software), validate_only=True)
    metrics.change("too short", name, (every, SET, "99"))
    metrics.change("too long", name, (every, SET, "3600001"))
    metrics.change("no interval", name, (every, SET, "soon"))
    metrics.change("a match of nothing known", name, (match, SET, "a=b"))
    metrics.change("a match that is none", name, (match, SET, "client_id"))
    metrics.change("a pattern that is none", name, (match, SET, "client_id=["))
    metrics.change("an unknown config", name, ("no.such.thing", SET, "1"))
    metrics.change("no name", "", (every, SET, "100"))
    listed = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS])
    answer = talk.quietly(listed, 1)
    named = [each.resource_name for each in answer.config_resources]
    talk.note("listed", [each for each in named if each == name])
    for key in (every, what, match):
        metrics.quietly(name, (key, DELETE, None))
    metrics.look("nothing is left", name, until={})
    metrics.look("without a name", "", until={})


@dialogue("IncrementalAlterConfigs")
def of_groups(talk: Talk) -> None:
    group = Settings(talk, GROUP)
    name = talk.own("g")
    session = "consumer.session.timeout.ms"
    group.look("all of it", name, until={})
    group.change("a session timeout", name, (session, SET, "50000"))
    group.quietly(name, (session, DELETE, None))
    group.change("nothing", name)
    group.change("to delete what is not set", name, (session, DELETE, None))
    group.change("an unknown config", name, ("no.such.thing", SET, "1"))
    group.change("no name", "", (session, SET, "50000"))
    group.look("without a name", "", until={})
