"""Settings that change while the broker runs: saved in the store, published with the catalog.

They are configs of resources: `broker` (a node's id, or "" for all nodes), `client-metrics`,
`group`, and quotas. A change is validated here, and every process learns of it from the catalog.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType

from smq.coordinator.catalog_room import CatalogRoom
from smq.model.catalog import BROKER, CLIENT_METRICS, GROUP, QUOTA
from smq.model.config import Config
from smq.model.errors import BrokerError, ErrorCode, StoreError
from smq.model.live_config import (
    ALL_NODES,
    Changed,
    conflict_of,
    in_force,
    problem_of_change,
    usable,
)
from smq.store.config_changes import Changer
from smq.store.store import Store

PUBLISHED = BROKER, CLIENT_METRICS, QUOTA
# Earlier versions took more of them than there is room for: then the first are in force, of quotas
# before those of the others.
_LEFT_OUT = {QUOTA: "quotas", CLIENT_METRICS: "subscriptions of client metrics"}
RESOURCES_MAX = 10_000  # Per type: all of them are in every process's memory.
# Per type, as published: each change encodes all of them, in some 25 ms.
BYTES_MAX = 1024 * 1024
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Settings:
    """The changed settings. What is published of them takes its part of the catalog's `room`."""

    def __init__(self, store: Store, started: Config, room: CatalogRoom) -> None:
        self._store, self.started, self._room = store.resource_configs, started, room
        self._configs = self._store.all()
        self._bytes = dict.fromkeys((*PUBLISHED, GROUP), 0)
        for kind, resources in self._configs.items():
            self._count(kind, sum(_size(name, configs) for name, configs in resources.items()))
        self.changed: Changed = {}
        self._problems: list[str] = []
        self.config = started
        self._of_nodes: dict[int, Config] = {}
        self._use()

    @property
    def published(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """The settings that other processes receive, by type, resource and name."""
        found = {BROKER: dict(self.changed), **self._with_room()}
        return {kind: configs for kind, configs in found.items() if configs}

    @property
    def lacks_room(self) -> bool:
        """Whether not all that is stored may be published: an earlier version took too much."""
        return self._room.left < 0

    def check_room(self) -> None:
        """Raises StoreError: there is no room even without what may be left out. To be called once
        topics are counted."""
        if self._room_beside() < 0:
            raise StoreError(
                "store.sqlite",
                "its topics and the settings of brokers take more room than there is for them",
            )

    def _room_beside(self) -> int:
        return self._room.left + sum(self._bytes[kind] for kind in _LEFT_OUT)

    def _with_room(self) -> dict[str, Mapping[str, Mapping[str, str]]]:
        """What may be left out, all of it or the first."""
        stored = {kind: self._configs.get(kind, {}) for kind in _LEFT_OUT}
        if not self.lacks_room:
            return {kind: dict(resources) for kind, resources in stored.items()}
        left = self._room_beside()
        found: dict[str, Mapping[str, Mapping[str, str]]] = {}
        for kind, resources in stored.items():
            found[kind] = _first(resources, min(BYTES_MAX, left))
            left -= sum(_size(name, configs) for name, configs in found[kind].items())
        return found

    @property
    def problems(self) -> list[str]:
        """A sentence for stored settings that cannot be in force."""
        found = self._with_room()
        counts = {kind: (len(found[kind]), len(self._configs.get(kind, {}))) for kind in _LEFT_OUT}
        return self._problems + [
            f"{count} of {stored} {_LEFT_OUT[kind]} are in force, since there is no room for more: "
            "delete some, or topics"
            for kind, (count, stored) in counts.items()
            if count < stored
        ]

    def of_node(self, node_id: int) -> Config:
        """The config in force on a node."""
        if node_id not in self._of_nodes:
            self._of_nodes[node_id] = in_force(self.started, self.changed, str(node_id))
        return self._of_nodes[node_id]

    def names(self, kind: str) -> list[str]:
        """The resources of a type that have configs."""
        return sorted(self._configs.get(kind, {}))

    @property
    def quotas(self) -> Mapping[str, Mapping[str, str]]:
        """The quotas of all entities."""
        return self._configs.get(QUOTA, {})

    def configs(self, kind: str, resource: str) -> Mapping[str, str]:
        """The configs set on a resource."""
        return self._configs.get(kind, {}).get(resource, _NOTHING)

    def configure_broker(
        self, node: str, configs: Mapping[str, str], by: Changer, *, validate_only: bool = False
    ) -> None:
        """Give a node, or all ("") these settings in place of its own. Raises BrokerError."""
        stripped = {name: text.strip() for name, text in configs.items()}
        before = self.configs(BROKER, node)
        problem = problem_of_change(node, before, stripped)
        if not problem:
            # Stored settings that are not in force stay so, unless replaced.
            in_force_now = self.changed.get(node, {})
            layer = {
                name: text
                for name, text in stripped.items()
                if name in in_force_now or before.get(name) != text
            }
            candidate = {**self.changed, node: layer}
            problem = conflict_of(self.started, candidate, candidate)
        if problem:
            raise BrokerError(ErrorCode.INVALID_REQUEST, problem)
        self.configure(BROKER, node, stripped, by, validate_only=validate_only)

    def configure(
        self,
        kind: str,
        resource: str,
        configs: Mapping[str, str],
        by: Changer,
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a resource these valid configs in place of its own. Raises BrokerError."""
        before, resources = self.configs(kind, resource), self._configs.setdefault(kind, {})
        if before == configs:
            return
        if resource not in resources and len(resources) >= RESOURCES_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"There are {RESOURCES_MAX} resources of this type with configs: "
                "delete those of some first.",
            )
        grown = _size(resource, configs) - _size(resource, before)
        self._check_room(kind, grown)
        if validate_only:
            return
        self._store.replace(kind, resource, before, configs, by)
        if configs:
            resources[resource] = dict(configs)
        else:
            resources.pop(resource, None)
        self._count(kind, grown)
        if kind == BROKER:
            self._use()

    def _check_room(self, kind: str, grown: int) -> None:
        """Refuse more than other processes can be told: they could not start again."""
        if grown > 0 and self._bytes[kind] + grown > BYTES_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"Configs of resources of this type may take {BYTES_MAX} bytes: "
                "delete those of some first.",
            )
        if kind in PUBLISHED and not self._room.has(grown):
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                "This broker has no room for more configs: delete some, or topics, first.",
            )

    def _count(self, kind: str, grown: int) -> None:
        self._bytes[kind] = self._bytes.get(kind, 0) + grown
        if kind in PUBLISHED:
            self._room.count(grown)

    def _use(self) -> None:
        stored = self._configs.get(BROKER, {})
        self.changed, self._problems = usable(self.started, stored)
        self.config = in_force(self.started, self.changed, ALL_NODES)
        self._of_nodes.clear()


def _first(
    resources: Mapping[str, Mapping[str, str]], bytes_max: int
) -> dict[str, Mapping[str, str]]:
    """The first resources, as many as fit."""
    found: dict[str, Mapping[str, str]] = {}
    for name, configs in resources.items():
        bytes_max -= _size(name, configs)
        if bytes_max < 0:
            break
        found[name] = configs
    return found


def _size(resource: str, configs: Mapping[str, str]) -> int:
    """The bytes that a resource's configs take among others in the published catalog."""
    return len(json.dumps({resource: dict(configs)})) if configs else 0
