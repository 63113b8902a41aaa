"""Configs of a machine with four cores."""

from pathlib import Path
from typing import Any

from smq.model.config import Config
from smq.model.config_rules import size
from smq.model.config_sources import Machine, parse
from smq.model.setting import GiB

MACHINE = Machine(4, 16 * GiB, Path("/home/someone/.local/share/smq"), Path("/tmp/smq-1"))


def config_of(**sources: Any) -> Config:
    config = parse(MACHINE, **sources)
    assert isinstance(config, Config), config
    return config


def problems_of(**sources: Any) -> list[str]:
    problems = parse(MACHINE, **sources)
    assert isinstance(problems, list)
    return problems


def sized(config: Config, log_count: int, memory_bytes: int) -> Config:
    result = size(config, log_count, memory_bytes)
    assert isinstance(result, Config), result
    return result
