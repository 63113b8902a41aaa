"""The broker's settings in force: those of its start, and changes while it runs.

    default  <  configuration of the start  <  changed for all nodes ("")  <  changed for one node

The store keeps changes as texts, by node id. The coordinator validates each before it stores it,
and publishes all in the catalog; every process derives its `Config` with `in_force`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from smq.model.config import SETTINGS, Config
from smq.model.config_rules import broken_relations, misfits
from smq.model.setting import Setting, Update, value_of

ALL_NODES = ""
Changed = Mapping[str, Mapping[str, str]]
"""What was changed: by node id, "" for all, then by the setting's name."""


def in_force(started: Config, changed: Changed, node: str = ALL_NODES) -> Config:
    """The config of a node, or of the processes that serve all nodes. `changed` is valid."""
    layers = changed.get(ALL_NODES, {}), changed.get(node, {})
    merged = {name: text for layer in layers for name, text in layer.items()}
    return _changed_config(started, tuple(merged.items())) if merged else started


@lru_cache(maxsize=256)  # The same settings give the same object: compare by identity.
def _changed_config(started: Config, changes: tuple[tuple[str, str], ...]) -> Config:
    values: dict[str, Any] = {
        SETTINGS[name].key: value_of(SETTINGS[name], text) for name, text in changes
    }
    keep_bytes = values.get("wal_keep_bytes", 0)
    if not 0 <= keep_bytes <= started.wal_bytes_max:
        values["wal_keep_bytes"] = started.wal_bytes_max
    return replace(started, **values)


def problem_of_change(node: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Why these settings cannot replace those of a node, or of all; or ""."""
    new = [name for name, text in after.items() if before.get(name) != text]
    return next((each for name in new if (each := _problem_of_one(node, name, after[name]))), "")


def _problem_of_one(node: str, name: str, text: str) -> str:
    found = SETTINGS.get(name)
    if found is None:
        return f"Unknown broker config name: {name}"
    if found.update is Update.READ_ONLY:
        return (
            f"Cannot change {name} dynamically: it needs a restart: "
            "change it in the broker's configuration and start the broker again."
        )
    if node != ALL_NODES and found.update is Update.CLUSTER_WIDE:
        return (
            f"Cannot change {name} at per-broker level: it holds for all brokers: "
            "set it as their default."
        )
    try:
        value_of(found, text)
    except ValueError as reason:
        return f"Invalid value {text} for configuration {name}: {reason}"
    return ""


def conflict_of(started: Config, changed: Changed, nodes: Iterable[str]) -> str:
    """The first conflict between settings, of all nodes or of one of these; or ""."""
    of_each = (_conflict_of_one(in_force(started, changed, node)) for node in (ALL_NODES, *nodes))
    return next(filter(None, of_each), "")


def _conflict_of_one(config: Config) -> str:
    return next((each.sentence for each in chain(broken_relations(config), misfits(config))), "")


def usable(started: Config, stored: Changed) -> tuple[Changed, list[str]]:
    """The stored changes that can be in force, and a sentence for each that cannot.

    A start's configuration may conflict with earlier changes, and another version may have other
    settings.
    """
    problems: list[str] = []
    changed: dict[str, dict[str, str]] = {}
    for node, configs in sorted(stored.items()):  # Those of all nodes come first.
        for name, text in sorted(configs.items()):
            layer = {**changed.get(node, {}), name: text}
            # What is set for a node is no matter of the others: nodes are many.
            candidate = {ALL_NODES: changed.get(ALL_NODES, {}), node: layer}
            problem = _problem_of_one(node, name, text) or _conflict_of_one(
                in_force(started, candidate, node)
            )
            if problem:
                whose = f"broker {node}" if node else "all brokers"
                shown = SETTINGS[name].shown(text) if name in SETTINGS else text
                problems.append(f"{name}={shown}, set for {whose}, is not in force: {problem}")
            else:
                changed[node] = layer
    return changed, problems


def changeable() -> Iterator[Setting]:
    """The settings that can change while the broker runs."""
    return (each for each in SETTINGS.values() if each.update is not Update.READ_ONLY)
