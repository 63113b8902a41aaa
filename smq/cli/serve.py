"""`smq serve`: every setting is an option, generated from the table of settings.

Heavy imports follow the parsing of arguments: a help text does not wait for Numba.
"""

import gc
import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from smq.app.process.program import ONE_THREAD
from smq.app.process.refusal import or_refuse, refuse_wire_only
from smq.model.config import SETTINGS, Config
from smq.model.config_rules import size, size_wal
from smq.model.config_sources import Machine, parse
from smq.model.setting import FROM_FILE

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="A configuration file (TOML).", metavar="FILE"),
]


def load_config(file: Path | None, given: dict[str, Any]) -> tuple[Config, Machine]:
    """The configuration of this invocation. Raises SystemExit with all problems."""
    refuse_wire_only()
    _refuse_secrets(given)
    from smq.app.process.machine import this_machine  # noqa: PLC0415  (It exists on Linux only.)

    try:
        text = file.read_text() if file else ""
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


def _refuse_secrets(given: dict[str, Any]) -> None:
    """Every user of the host can read a program's arguments. Raises SystemExit."""
    for name, text in given.items():
        found = SETTINGS[name]
        if found.secret and text and not text.startswith(FROM_FILE):
            raise SystemExit(
                f"smq: {found.option}: other users of this host can read the command line; write "
                f"{found.option}={FROM_FILE}PATH, or set {found.variable} or the "
                "configuration file"
            )


def serve(*, config: Path | None, print_config: bool, **given: str | None) -> None:
    """Start the broker and serve until SIGTERM or Ctrl-C. Needs Linux on x86_64 or aarch64."""
    command_line = {
        setting.name: given[setting.key]
        for setting in SETTINGS.values()
        if given[setting.key] is not None
    }
    settings, machine = load_config(config, command_line)
    if print_config:
        from smq.app.process.machine import room_for_logs  # noqa: PLC0415  (as above)

        sized = or_refuse(size(settings, settings.shards, machine.memory_bytes))
        disk_bytes = room_for_logs(sized.data_dir / "logs")
        typer.echo(size_wal(sized, sized.shards, disk_bytes).text(), nl=False)
        return
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    gc.disable()  # Modules stay loaded: the collector need not scan them again.
    from smq.app.supervisor.composition import serve_broker  # noqa: PLC0415  (NumPy reads the environment)

    raise typer.Exit(serve_broker(settings, machine))


def _parameters() -> list[inspect.Parameter]:
    settings = [
        _parameter(
            setting.key,
            Annotated[
                str | None,
                typer.Option(
                    setting.option,
                    help=f"{setting.doc} \\[{setting.default_words or setting.default}]".replace(
                        "`", ""
                    ),
                    metavar=setting.type.__name__.upper(),
                    show_default=False,
                    rich_help_panel="Settings (also SMQ_… in the environment, and in the file)",
                ),
            ],
            None,
        )
        for setting in SETTINGS.values()
    ]
    printing = Annotated[bool, typer.Option("--print-config", help="Print the settings and exit.")]
    return [
        _parameter("config", ConfigFile, None),
        _parameter("print_config", printing, False),  # noqa: FBT003  (its default)
        *settings,
    ]


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


# typer reads the options from the signature.
serve.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
serve.__annotations__ = {each.name: each.annotation for each in _parameters()}
