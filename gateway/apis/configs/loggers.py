"""The loggers of a broker. There is one level; messages go to stderr.

Tools find the logger `root` with level INFO. Other levels are refused.
"""

from collections.abc import Mapping

from gateway.apis.configs.entries import Source, check_broker, invalid, invalid_config
from gateway.apis.configs.kind import Configs, ResourceKind
from gateway.coordinator_context import CoordinatorContext
from smq.store.config_changes import Changer
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

ROOT, LEVEL = "root", "INFO"
LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")


def _describe(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    _check(name, context)
    return [
        DescribeConfigsResourceResult(
            name=ROOT,
            value=LEVEL,
            read_only=True,
            config_source=Source.DYNAMIC_BROKER_LOGGER,
            synonyms=[],
            documentation="The broker says on stderr what an operator has to know.",
        )
    ]


def _check(name: str, context: CoordinatorContext) -> None:
    if not name:
        raise invalid("Broker id must not be empty")
    check_broker(name, context.node_id)


def _own(name: str, context: CoordinatorContext) -> Mapping[str, str]:
    _check(name, context)
    return {ROOT: LEVEL}


def _listed(_name: str, _config_name: str, _context: CoordinatorContext) -> str | None:
    raise invalid("The operations of loggers are SET and DELETE.")


def _replace(
    _name: str, configs: Configs, _by: Changer, _context: CoordinatorContext, *, validate_only: bool
) -> None:
    del validate_only
    if ROOT not in configs:
        raise invalid("Removing the log level of the root logger is not allowed")
    for logger, level in configs.items():
        if logger != ROOT:
            raise invalid_config(f"Logger {logger} does not exist!")
        if level not in LEVELS:
            raise invalid_config(
                f"Cannot set the log level of {logger} to {level} as it is not a supported log "
                f"level. Valid log levels are {', '.join(LEVELS)}"
            )
        if level != LEVEL:
            raise invalid_config(
                f"This broker has one log level, {LEVEL}: what an operator has to know is on stderr"
            )


LOGGERS = ResourceKind(_describe, _own, _listed, _replace)
