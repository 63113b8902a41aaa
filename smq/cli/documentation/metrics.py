"""The table of docs/metrics.md, read from a page of /metrics that has one of everything."""

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from shm.cluster import LoginCounts
from smq.app.process.status import COUNTERS
from smq.front.metrics.facts import (
    BOUNDS_S,
    ApiErrors,
    ApiTimes,
    CertificateFacts,
    Facts,
    GroupOffset,
    LogFacts,
    NodeFacts,
    PartitionFacts,
    ProcessFacts,
    RpcFacts,
    TableFacts,
)
from smq.front.metrics.page import page

ONE_OF_EACH = Facts(
    version="1",
    is_ready=True,
    started_ms=0,
    processes=[ProcessFacts("shard-1", is_ready=True, restarts=0)],
    nodes=[NodeFacts(1, 0, 0, 1, LoginCounts())],
    certificates=[CertificateFacts("SSL", 1.0)],
    logs=[LogFacts(0, dict.fromkeys(COUNTERS, 0), 1, 1, 1, 1, 1)],
    partitions=[PartitionFacts("t", 0, 1, 0, 0, 0, 0, 0)],
    offsets=[GroupOffset("g", "t", 0, 0, 0, 0.0)],
    members={"g": 1},
    times=[ApiTimes("Fetch", (1,) * len(BOUNDS_S), 1, 0.1)],
    errors=[ApiErrors("Fetch", "OFFSET_OUT_OF_RANGE", 1)],
    rpcs=[RpcFacts("messaging_pb.SeaweedMessaging", "ListTopics", {"OK": 1}, 0.1, 0)],
    tables=[TableFacts("t", "iceberg", "")],
)


def reference() -> str:
    """A row for each metric."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    families = text_string_to_metric_families(page(ONE_OF_EACH).decode())
    rows += sorted(_row(family) for family in families)
    return "\n".join(rows) + "\n"


def _row(family: Metric) -> str:
    name = family.name + ("_total" if family.type == "counter" else "")
    labels = {label: None for sample in family.samples for label in sample.labels}
    labels.pop("le", None)
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |"
