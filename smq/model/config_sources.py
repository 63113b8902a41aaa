"""The config from file, environment and command line.

    defaults  <  configuration file (TOML)  <  environment (SMQ_…)  <  command line

`parse` returns a Config, or all problems at once, each a sentence. Facts of the machine (cores,
memory, directories of the user) are an argument.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from smq.model.config import SETTINGS, UNSET, Config, setting_of
from smq.model.config_rules import Problem, broken_relations, fitted
from smq.model.named_files import read_named
from smq.model.security_settings import LISTENER_PREFIX, LISTENERS, SHORT_FORM
from smq.model.setting import (
    ENVIRONMENT_PREFIX,
    FROM_FILE,
    NO_SETTINGS,
    PathOrUrl,
    Setting,
    value_of,
)

ReadFile = Callable[[Path], bytes]
"""Reads a secret's file. Raises OSError."""


class Machine(NamedTuple):
    """The facts that defaults depend on."""

    cores: int
    memory_bytes: int
    data_home: Path
    runtime_home: Path


def parse(  # noqa: PLR0913  (each source is named)
    machine: Machine,
    *,
    file: str = "",
    file_name: str = "configuration file",
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, Any] | None = None,
    read: ReadFile = read_named,
) -> Config | list[str]:
    """The config from these sources, or all problems in them.

    `file` is the text of a configuration file, `environment` all variables (only SMQ_ ones count,
    and none of NO_SETTINGS),
    `command_line` the options that were given, by the settings' names. `read` reads the file that a
    secret setting names.
    """
    problems: list[Problem] = []
    chosen: dict[str, Any] = {}
    for source, given in (
        (file_name, _of_file(file, file_name, problems)),
        ("environment", _of_environment(environment or {})),
        ("command line", command_line or {}),
    ):
        if given.get(LISTENERS):  # They replace the short form that an earlier source has.
            for key in SHORT_FORM:
                chosen.pop(key, None)
        for name, raw in given.items():
            _choose(chosen, name, raw, TextSource(source, read, problems))
    config = _with_machine_defaults(Config(**chosen), machine)
    # A refused value has been replaced by its default, which causes no further problems.
    wrong = {key for problem in problems for key in problem.keys}
    problems += [each for each in broken_relations(config) if wrong.isdisjoint(each.keys)]
    if problems:  # Otherwise sizes are checked when the logs have been counted: config_rules.size.
        _, misfits = fitted(config, config.shards, machine.memory_bytes)
        problems += [each for each in misfits if wrong.isdisjoint(each.keys)]
    return [problem.sentence for problem in problems] or config


class TextSource(NamedTuple):
    """Where a text is from, and where its problems go."""

    name: str
    read: ReadFile
    problems: list[Problem]


def _choose(chosen: dict[str, Any], name: str, raw: object, source: TextSource) -> None:
    name = name.lower() if name.lower().startswith(LISTENER_PREFIX) else name
    try:
        found = setting_of(name)
    except KeyError:
        import difflib  # noqa: PLC0415  (seldom needed)

        near = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        source.problems.append(Problem(f"{name} ({source.name}): there is no such setting{hint}"))
        return
    try:
        value = value_of(found, _revealed(found, raw, source.read))
    except ValueError as reason:
        source.problems.append(Problem(f"{name} ({source.name}): {reason}", (found.key,)))
        return
    if name in SETTINGS:
        chosen[found.key] = value
    else:
        of_listeners = dict(chosen.get("listener_settings", ())) | {name: value}
        chosen["listener_settings"] = tuple(of_listeners.items())


def _revealed(setting: Setting, raw: object, read: ReadFile) -> object:
    """The value, from the file that it names if it is a secret's. Raises ValueError."""
    if not (setting.secret and isinstance(raw, str) and raw.startswith(FROM_FILE)):
        return raw
    path = raw.removeprefix(FROM_FILE)
    try:
        return read(Path(path).expanduser()).decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8 text") from None
    except (OSError, RuntimeError) as reason:
        raise ValueError(f"the file {path} cannot be read: {reason}") from None


def _of_file(text: str, name: str, problems: list[Problem]) -> dict[str, Any]:
    if not text:  # Mostly there is no file.
        return {}
    import tomllib  # noqa: PLC0415  (seldom needed)

    try:
        return dict(_flat("", tomllib.loads(text)))
    except tomllib.TOMLDecodeError as reason:
        problems.append(Problem(f"{name}: not valid TOML: {reason}"))
        return {}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        variable.removeprefix(ENVIRONMENT_PREFIX).replace("_", ".").lower(): value
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(NO_SETTINGS)
    }


def _with_machine_defaults(config: Config, machine: Machine) -> Config:
    data_dir = machine.data_home if config.data_dir == UNSET else config.data_dir
    return replace(
        config,
        data_dir=data_dir,
        shards=config.shards or max(1, machine.cores - 1),
        filer_root=config.filer_root or PathOrUrl(data_dir / "filer"),
        runtime_dir=machine.runtime_home if config.runtime_dir == UNSET else config.runtime_dir,
    )
