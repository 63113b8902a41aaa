"""The verbs of the command line, as a Typer application.

A verb's module is imported when the verb is run or described, and defers its own imports: `smq
--help` imports neither NumPy nor Numba nor PyArrow. A refusal is a sentence on stderr and exit code
1; wrong usage is 2.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from smq.cli.client import CommandConfig

# A verb's module, and its function or group there, in the order of the help text.
VERBS = {
    "serve": ("smq.cli.serve", "serve"),
    "status": ("smq.cli.status", "status"),
    "doctor": ("smq.cli.doctor", "doctor"),
    "produce": ("smq.cli.records.produce", "produce"),
    "consume": ("smq.cli.records.consume", "consume"),
    "copy": ("smq.cli.records.copy", "copy"),
    "export": ("smq.cli.records.export", "export"),
    "import": ("smq.cli.records.import_files", "import_files"),
    "snapshot": ("smq.cli.snapshot", "snapshot"),
    "restore": ("smq.cli.snapshot", "restore"),
    "sql": ("smq.cli.sql", "sql"),
    "spark": ("smq.cli.spark", "spark"),
    "topic": ("smq.cli.topics", "app"),
    "group": ("smq.cli.group.verbs", "app"),
    "config": ("smq.cli.config", "app"),
    "user": ("smq.cli.user", "app"),
    "acl": ("smq.cli.acl", "app"),
    "prepare": ("smq.cli.prepare", "prepare"),
    "payload": ("smq.cli.payloads", "app"),
    "tables": ("smq.cli.tables", "app"),
    "certs": ("smq.cli.certs", "certs"),
    "bench": ("smq.cli.bench", "app"),
}


class _Commands(Mapping[str, Any]):
    """The verbs as Typer's commands; each is made when it is looked up."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  (Typer's releases have no common type.)
        return _command(*VERBS[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _command(module: str, attribute: str, name: str) -> Any:  # noqa: ANN401  (as above)
    home = import_module(module)
    verb = getattr(home, attribute)
    if isinstance(verb, typer.Typer):
        group = typer.main.get_group(verb)
        group.name = name
        for command in group.commands.values():
            _add_command_config(command)
        return group
    alone = typer.Typer(add_completion=False)
    epilog, context_settings = getattr(home, "JSON", None), getattr(home, "PASS_THROUGH", None)
    alone.command(name, epilog=epilog, context_settings=context_settings)(verb)
    command = typer.main.get_command(alone)
    _add_command_config(command)
    return command


def _add_command_config(command: Any) -> None:  # noqa: ANN401  (as above)
    """The option of Kafka's tools, where a command connects to a broker."""
    places = [i for i, each in enumerate(command.params) if each.name == "bootstrap"]
    if places:
        command.params.insert(places[0] + 1, _command_config())


@cache
def _command_config() -> Any:  # noqa: ANN401  (as above)
    def takes(_command_config: CommandConfig = None) -> None:
        pass

    alone = typer.Typer(add_completion=False)
    alone.command()(takes)
    [option] = typer.main.get_command(alone).params
    option.name, option.expose_value = "command_config", False
    return option


class _Verbs(TyperGroup):
    def __init__(self, **given: Any) -> None:  # noqa: ANN401  (as above)
        super().__init__(**given)
        self.commands: Any = _Commands()


app = typer.Typer(
    name="smq",
    cls=_Verbs,
    help="A message queue for one host that speaks Kafka's protocol.",
    epilog="Brokers, and verbs that need a broker's host, run on Linux. Other verbs reach a broker "
    "by --bootstrap from any system.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415  (seldom needed)

        typer.echo(f"smq {version('smq-broker')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    pass
