"""Starts a broker: its configuration, from options, the environment and a file, and its processes.

Heavy imports follow the check of the options: a refusal does not wait for NumPy.
"""

import gc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from smq.app.process.program import ONE_THREAD
from smq.app.process.refusal import or_refuse, refuse_wire_only
from smq.model.config import SETTINGS, Config
from smq.model.config_sources import Machine, parse
from smq.model.named_files import read_named
from smq.model.setting import FROM_FILE

CONFIG = "--config"  # The option that names a file, unlike all others.
LIKE_AN_OPTION = "-"
INTERRUPTED = 130  # As the shell says it: 128, and the number of SIGINT.
OPTIONS = {setting.option: setting.name for setting in SETTINGS.values()}


class StartOptions(NamedTuple):
    """What a command line says: a configuration file, and settings by their names."""

    file: Path | None
    given: dict[str, str]


def plain_options(arguments: Sequence[str]) -> StartOptions | None:
    """The options, if all of `arguments` are known ones, each with a value.

    None is for Typer to read: a call for help, a mistake, a value that looks like an option.
    """
    file, given, rest = None, {}, iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, LIKE_AN_OPTION)
        if value.startswith(LIKE_AN_OPTION):
            return None
        if option == CONFIG:
            file = Path(value)
        elif option in OPTIONS:
            given[OPTIONS[option]] = value
        else:
            return None
    return StartOptions(file, given)


def start(options: StartOptions) -> int:
    """Serve until a signal stops us; returns the exit code. Raises SystemExit with a sentence."""
    gc.disable()  # Modules stay loaded: the collector need not scan them again.
    try:
        config, machine = load_config(*options)
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        from smq.app.supervisor.composition import serve_broker  # noqa: PLC0415  (NumPy reads the environment)

        return serve_broker(config, machine)
    except KeyboardInterrupt:  # Before the supervisor handles signals.
        raise SystemExit(INTERRUPTED) from None


def load_config(file: Path | None, given: Mapping[str, str]) -> tuple[Config, Machine]:
    """The configuration of this invocation. Raises SystemExit with all problems."""
    refuse_wire_only()
    _refuse_secrets(given)
    from smq.app.process.machine import this_machine  # noqa: PLC0415  (It exists on Linux only.)

    try:
        text = read_named(file, passed_on_as="the configuration").decode() if file else ""
    except OSError as reason:
        raise SystemExit(
            f"smq: the configuration file {file} cannot be read: {reason.strerror}"
        ) from reason
    except UnicodeDecodeError as reason:
        raise SystemExit(
            f"smq: the configuration file {file} is not UTF-8 text; save it as UTF-8"
        ) from reason
    machine = this_machine(os.environ)
    name = f"configuration file {file}"
    parsed = parse(machine, file=text, file_name=name, environment=os.environ, command_line=given)
    return or_refuse(parsed), machine


def _refuse_secrets(given: Mapping[str, str]) -> None:
    """Every user of the host can read a program's arguments. Raises SystemExit."""
    for name, text in given.items():
        found = SETTINGS[name]
        if found.secret and text and not text.startswith(FROM_FILE):
            raise SystemExit(
                f"smq: {found.option}: other users of this host can read the command line; write "
                f"{found.option}={FROM_FILE}PATH, or set {found.variable} or the "
                "configuration file"
            )
