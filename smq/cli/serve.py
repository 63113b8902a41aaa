"""`smq serve` with Typer, for a help text and for mistakes: every setting is an option.

`smq.cli.start` starts a broker.
"""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from smq.app.process.refusal import or_refuse
from smq.cli.start import CONFIG, StartOptions, load_config, start
from smq.model.config import SETTINGS
from smq.model.config_rules import size, size_wal

ConfigFile = Annotated[
    Path | None,
    typer.Option(CONFIG, help="A configuration file (TOML).", metavar="FILE"),
]


def serve(*, config: Path | None, print_config: bool, **given: str | None) -> None:
    """Start the broker and serve until SIGTERM or Ctrl-C. Needs Linux on x86_64 or aarch64."""
    texts = {setting.name: given[setting.key] for setting in SETTINGS.values()}
    options = StartOptions(config, {name: text for name, text in texts.items() if text is not None})
    if not print_config:
        raise typer.Exit(start(options))
    settings, machine = load_config(*options)
    from smq.app.process.machine import room_for_logs  # noqa: PLC0415  (It exists on Linux only.)
    from smq.security.listener_rules import problems_of_listeners  # noqa: PLC0415  (seldom needed)

    unsafe = [problem.sentence for problem in problems_of_listeners(settings)]
    sized = or_refuse(unsafe or size(settings, settings.shards, machine.memory_bytes))
    disk_bytes = room_for_logs(sized.data_dir / "logs")
    typer.echo(size_wal(sized, sized.shards, disk_bytes).text(), nl=False)


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
