"""docs/sdk_reference.md: every name that `import smq` offers, from signatures and docstrings."""

import inspect
from collections.abc import Iterator
from typing import Any

from smq.client import sdk


def reference() -> str:
    """Markdown: functions first, then classes with their methods, then exceptions."""
    offered = {name: each for name, each in vars(sdk).items() if not name.startswith("_")}
    functions = {name: each for name, each in offered.items() if inspect.isfunction(each)}
    classes = {name: each for name, each in offered.items() if inspect.isclass(each)}
    errors = {name: each for name, each in classes.items() if issubclass(each, Exception)}
    lines: list[str] = []
    lines += ["## Functions\n", *_functions(functions)]
    lines += ["## Classes\n", *_classes({k: v for k, v in classes.items() if k not in errors})]
    lines += ["## Exceptions\n", "| exception | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(each)} |" for name, each in sorted(errors.items())]
    return "\n".join(lines) + "\n"


def _functions(functions: dict[str, Any]) -> Iterator[str]:
    for name, each in sorted(functions.items()):
        yield from _callable(f"smq.{name}", each, "###")


def _classes(classes: dict[str, Any]) -> Iterator[str]:
    for name, each in sorted(classes.items()):
        yield f"### `smq.{name}`\n"
        yield _text(each)
        members = {
            key: value
            for parent in reversed(each.__mro__[:-1])
            if parent.__module__.startswith("smq.")
            for key, value in vars(parent).items()
            if not key.startswith("_")
        }
        for key, value in sorted(members.items()):
            if isinstance(value, property):
                yield f"#### `{name}.{key}`\n"
                yield _text(value.fget)
            elif inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
                yield from _callable(f"{name}.{key}", getattr(each, key), "####")


def _callable(name: str, function: Any, level: str) -> Iterator[str]:  # noqa: ANN401  (any callable)
    yield f"{level} `{name}`\n"
    parameters = [
        str(each.replace(annotation=inspect.Parameter.empty))
        for each in inspect.signature(function).parameters.values()
        if each.name not in {"self", "cls"}
    ]
    yield f"```python\n{name}({', '.join(_with_star(function, parameters))})\n```\n"
    yield _text(function)


def _with_star(function: Any, parameters: list[str]) -> list[str]:  # noqa: ANN401  (as above)
    """The parameters with the `*` before those that are given by name."""
    kinds = [
        each.kind
        for each in inspect.signature(function).parameters.values()
        if each.name not in {"self", "cls"}
    ]
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY not in kinds:
        return parameters
    at = kinds.index(inspect.Parameter.KEYWORD_ONLY)
    return [*parameters[:at], "*", *parameters[at:]]


def _text(documented: Any) -> str:  # noqa: ANN401  (as above)
    """Its docstring; lines that are set off, as tables of arguments are, stay as they stand."""
    text = inspect.getdoc(documented) or ""
    if text.startswith(("TypedDict", "NamedTuple")) or not text:
        return ""
    blocks = []
    for block in text.split("\n\n"):
        is_table = any("  " in line.strip() or line.startswith(" ") for line in block.split("\n"))
        blocks.append(f"```text\n{block}\n```" if is_table else block)
    return "\n\n".join(blocks) + "\n"


def _cell(documented: Any) -> str:  # noqa: ANN401  (as above)
    return " ".join((inspect.getdoc(documented) or "").split()).replace("|", "\\|")
