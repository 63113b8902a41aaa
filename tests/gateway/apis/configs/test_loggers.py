"""Tools find one logger with a fixed level."""

import pytest

from gateway.apis.configs.kinds import Resource
from smq.model.errors import ErrorCode
from tests.gateway.apis.configs.config_asker import DELETE, SET, change, describe
from tests.gateway.coordinator_bench import CoordinatorBench

LOGGER = Resource.BROKER_LOGGER


def test_the_root_logger_has_its_level(bench: CoordinatorBench) -> None:
    assert describe(bench, LOGGER, "1") == {"root": ("INFO", 6, [])}
    assert change(bench, LOGGER, "1", ("root", SET, "INFO")) == (0, None)


@pytest.mark.parametrize(
    ("name", "operation", "level", "code"),
    [
        ("root", SET, "ERROR", ErrorCode.INVALID_CONFIG),
        ("root", SET, "info", ErrorCode.INVALID_CONFIG),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST),
        ("other", SET, "INFO", ErrorCode.INVALID_CONFIG),
    ],
)
def test_other_levels_are_refused(
    bench: CoordinatorBench, name: str, operation: int, level: str | None, code: ErrorCode
) -> None:
    assert change(bench, LOGGER, "1", (name, operation, level))[0] == code
