"""How far each consumer group lags: asked of the broker, as any client would."""

from typing import Any

from smq.client.admin import group_lags, groups
from smq.client.cluster import Cluster
from smq.model.errors import BrokerError, PeerError

DEADLINE_S = 5.0


def group_facts(bootstrap: str) -> list[dict[str, Any]] | str:
    """Every group with its lag in each topic; or why the broker does not tell."""
    try:
        with Cluster(bootstrap, DEADLINE_S) as cluster:
            return [_group(cluster, each.group_id, each.group_state) for each in groups(cluster)]
    except (BrokerError, PeerError) as reason:
        return str(reason)


def _group(cluster: Cluster, group_id: str, state: str) -> dict[str, Any]:
    lags: dict[str, int] = {}
    for each in group_lags(cluster, group_id):
        lags[each.topic] = lags.get(each.topic, 0) + each.lag
    return {"group": group_id, "state": state, "lags": lags}
