"""A known defect: methods without their mend, and the events that bring it to light."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

TOPICS = frozenset({"produce", "create", "create-again"})
DISKS = TOPICS | {"disk-fails", "disk-is-slow"}
MEMBERS = TOPICS | {"come", "vanish", "coordinator-stops"}
CLOCKS = TOPICS | {"transact", "set-clock"}
CRASHES = DISKS | {"kill", "kill-all", "cut-power"}


class Change(NamedTuple):
    """A method, or a module's function, and its replacement."""

    owner: type | ModuleType
    name: str
    method: Callable[..., Any]


class Mutant(NamedTuple):
    """A row: the defect's name, its effect, the kinds of its events, its changes, and the first
    seed that found it when it was last looked for (a change of the events changes that)."""

    name: str
    defect: str
    kinds: frozenset[str]
    changes: tuple[Change, ...]
    seed: int
