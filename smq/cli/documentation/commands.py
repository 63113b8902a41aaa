"""Generates docs/cli.md, the reference of the command line, from the verbs.

Typer's newer releases bundle Click, older ones import the package: only Typer's own classes are the
same in both.
"""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup

from smq.cli.verbs import app


def verbs() -> Iterator[tuple[str, Any]]:
    """Each verb as a Typer command, by its full name, such as `smq topic create`."""
    yield from _verbs(typer.main.get_command(app), "smq")


def reference() -> str:
    """Markdown: a section for each verb, with its arguments, options and JSON."""
    return "\n".join(line for path, command in verbs() for line in _section(path, command))


def _verbs(command: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (as above)
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    for name in sorted(command.commands):
        yield from _verbs(command.commands[name], f"{path} {name}")


def _section(path: str, command: Any) -> Iterator[str]:  # noqa: ANN401  (as above)
    yield f"## `{path}`\n"
    yield " ".join((command.help or "").split()) + "\n"
    yield "| option | meaning |"
    yield "|---|---|"
    settings = [each for each in command.params if getattr(each, "rich_help_panel", None)]
    yield from (_row(each) for each in command.params if each not in settings)
    yield ""
    if settings:  # The options of `smq serve` have their own page.
        yield "And the settings of [configuration.md](configuration.md).\n"
    if command.epilog:
        head, _, shape = command.epilog.partition(": ")
        yield f"{head}: `{shape}`\n"


def _row(parameter: Any) -> str:  # noqa: ANN401  (as above)
    if isinstance(parameter, TyperArgument):
        names = parameter.metavar or (parameter.name or "").upper()
    else:
        names = ", ".join(parameter.opts) + (f" {parameter.metavar}" if parameter.metavar else "")
    text = (parameter.help or "").replace("|", "\\|")
    return f"| `{names}` | {text}{_default(parameter)} |"


def _default(parameter: Any) -> str:  # noqa: ANN401  (as above)
    shown = getattr(parameter.default, "value", parameter.default)
    is_shown = isinstance(shown, str | int | float) and not isinstance(shown, bool)
    return f" Default: `{shown}`." if is_shown and shown != "" else ""
