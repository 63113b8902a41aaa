"""Settings that change while the broker runs: saved in the store, published with the catalog.

They are configs of resources: `broker` (a node's id, or "" for all nodes), `client-metrics`,
`group`, and quotas. A change is validated here, and every process learns of it from the catalog.
"""

from collections.abc import Mapping
from types import MappingProxyType

from smq.model.catalog import BROKER, CLIENT_METRICS, QUOTA
from smq.model.config import Config
from smq.model.errors import BrokerError, ErrorCode
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
RESOURCES_MAX = 10_000  # Per type: all of them are in every process's memory.
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Settings:
    """The changed settings. `problems`: stored settings that cannot be in force."""

    def __init__(self, store: Store, started: Config) -> None:
        self._store, self.started = store.resource_configs, started
        self._configs = self._store.all()
        self.changed: Changed = {}
        self.problems: list[str] = []
        self.config = started
        self._of_nodes: dict[int, Config] = {}
        self._use()

    @property
    def published(self) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """The settings that other processes receive, by type, resource and name."""
        found: dict[str, Mapping[str, Mapping[str, str]]] = {
            kind: dict(self._configs.get(kind, {})) for kind in PUBLISHED
        }
        found[BROKER] = dict(self.changed)
        return {kind: configs for kind, configs in found.items() if configs}

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
        if validate_only:
            return
        self._store.replace(kind, resource, before, configs, by)
        if configs:
            resources[resource] = dict(configs)
        else:
            resources.pop(resource, None)
        self._use()

    def _use(self) -> None:
        stored = self._configs.get(BROKER, {})
        self.changed, self.problems = usable(self.started, stored, stored)
        self.config = in_force(self.started, self.changed, ALL_NODES)
        self._of_nodes.clear()
