"""The lag of each consumer group, requested from the brokers as by any client.

They are asked by their unix sockets, where who may read the data directory needs no login and sees
all groups, whatever the listeners and the access rules are. One thread per node asks, so a node
that hangs hides only the groups it alone coordinates. The wait is bounded, as a person waits at the
terminal.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smq.app.process.clock import monotonic_ns
from smq.client.kafka.admin import group_lags
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import LIST_GROUPS
from smq.client.locate import way_to
from smq.client.secure.security import Security
from smq.model.errors import BrokerError, PeerError
from smq.wire.generated.list_groups import ListedGroup, ListGroupsRequest

DEADLINE_S = 2.0
NO_SOCKETS = (
    "the broker's unix sockets cannot be reached from here; its listeners show without a login at "
    "most what access rules give to everybody"
)


@dataclass(slots=True)
class GroupFacts:
    """Groups by id, with `lags` by topic (None: unknown), and sentences on what is missing."""

    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def group_facts(data_dir: Path, deadline_s: float = DEADLINE_S) -> GroupFacts:
    """Every group of a directory's broker with its lag in each topic, as far as known by the
    deadline."""
    facts = GroupFacts()
    try:
        addresses, security = way_to(data_dir)
    except BrokerError as reason:  # It has stopped meanwhile.
        return GroupFacts(missing=[str(reason)])
    if security.socket_owner is None:
        facts.missing.append(NO_SOCKETS)
    threads = {
        address: threading.Thread(
            target=_ask, args=(address, security, facts, deadline_s), daemon=True
        )
        for address in addresses.split(",")
    }
    for thread in threads.values():
        thread.start()
    until_ns = monotonic_ns() + int(deadline_s * 1e9)
    for address, thread in threads.items():
        thread.join(max(0.0, (until_ns - monotonic_ns()) / 1e9))
        if thread.is_alive():
            facts.missing.append(f"{address} has not answered in {deadline_s:g} s")
    return GroupFacts(dict(sorted(facts.groups.copy().items())), sorted(facts.missing))


def _ask(address: str, security: Security, facts: GroupFacts, deadline_s: float) -> None:
    """Ask a node for its groups, then for their lags, which other nodes may know."""
    try:
        # The caller's deadline comes first.
        with Cluster(address, 2 * deadline_s, security=security) as cluster:
            response = cluster.anyone().ask(LIST_GROUPS, ListGroupsRequest())
            check(response.error_code)
            for each in response.groups:
                facts.groups[each.group_id] = _group(each)
            for each in response.groups:
                lags: dict[str, int] = {}
                for lag in group_lags(cluster, each.group_id):
                    lags[lag.topic] = lags.get(lag.topic, 0) + lag.lag
                facts.groups[each.group_id] = _group(each, lags)
    except (BrokerError, PeerError) as reason:
        facts.missing.append(f"{address} failed: {reason}")


def _group(listed: ListedGroup, lags: dict[str, int] | None = None) -> dict[str, Any]:
    return {"group": listed.group_id, "state": listed.group_state, "lags": lags}
