"""Every API refuses who has no right, and nobody who has the rights that it needs.

tests/oracle/rights compares each answer with Apache Kafka's.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.apis.table import API_BY_KEY, APIS
from gateway.context import Ask
from gateway.error_codes import error_codes
from smq.model.now import Now
from smq.security.acls import Operation, ResourceType
from smq.security.audit import Audit
from smq.security.authorizer import Authorizer, Decision
from smq.security.principals import Peer
from smq.security.rights import EVERYTHING
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.list_groups import ListGroupsRequest
from smq.wire.generated.list_transactions import ListTransactionsRequest
from smq.wire.generated.metadata import MetadataRequest
from tests.gateway.apis.rights import limit_caller, limited
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.coordinator_cases import COORDINATOR
from tests.gateway.rights_case import CLUSTER, GROUP, TOPIC, TXN, Case
from tests.gateway.shard_api_bench import ShardBench
from tests.gateway.shard_cases import SHARD
from tests.shard.shard_bench import topic

REFUSALS = {TOPIC, GROUP, CLUSTER, TXN}
# Lists leave out what a client may not see, and are refused nothing; a Produce is in tests/shard.
NEVER_REFUSED = {"Produce", "ListGroups", "ListTransactions", "DescribeCluster"}


def codes(case: Case, answer: Any) -> Mapping[int, int]:
    return error_codes(API_BY_NAME[case.api].key, case.version, answer)


def denied_apis(audit: Audit) -> set[str]:
    """The APIs of which the audit log is told a denial."""
    lines = map(json.loads, audit.take_accesses(Now(0, 0)))
    return {line["api"] for line in lines if line["event"] == "denied"}


def words(case: Case) -> str:
    return f"{case.api} {case.version} {case.told}"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[Operation, ResourceType]]:
    """What has been asked of authorizers."""
    asked: set[tuple[Operation, ResourceType]] = set()
    decide = Authorizer.decide

    def note(self: Authorizer, peer: Peer, operation: Operation, kind: Any, name: str) -> Decision:
        asked.add((operation, kind))
        return decide(self, peer, operation, kind, name)

    monkeypatch.setattr(Authorizer, "decide", note)
    return asked


def declared(case: Case) -> set[tuple[Operation, ResourceType]]:
    return set(API_BY_KEY[API_BY_NAME[case.api].key].rights)


@pytest.mark.parametrize("case", COORDINATOR, ids=words)
def test_the_coordinator_asks_for_the_rights_of_the_table(
    bench: CoordinatorBench, case: Case, asked: set[tuple[Operation, ResourceType]]
) -> None:
    for number, rights in enumerate(("", *case.rights)):
        bench.coordinator.topics.ensure(["t"], bench.now)
        limited(bench, f"user{number}", *rights)
        found = codes(case, bench.ask(case.api, case.version, case.request))
        assert set(found) == {case.told} if not rights else not set(found) & REFUSALS, rights
        audit = bench.coordinator.access.audit
        assert denied_apis(audit) == ({case.api} if not rights else set()), rights
        assert rights or audit.take_acts() == []
    told_operations = case.api == "DescribeGroups"
    assert told_operations or asked <= declared(case)


@pytest.mark.parametrize("case", SHARD, ids=words)
def test_a_shard_asks_for_the_rights_of_the_table(
    tmp_path: Path, case: Case, asked: set[tuple[Operation, ResourceType]]
) -> None:
    bench = ShardBench(tmp_path, topic("t"))
    for rights in ("", *case.rights):
        limit_caller(bench, "alice", *rights)
        answer = bench.ask(case.api, case.version, case.request)
        found = {} if isinstance(answer, Ask) else codes(case, answer)
        assert set(found) == {case.told} if not rights else not set(found) & REFUSALS, rights
        audit = bench.caller.rights.audit
        assert denied_apis(audit) == ({case.api} if not rights else set()), rights
        assert rights or audit.take_acts() == []
    told_operations = case.api in {"Metadata", "DescribeTopicPartitions"}
    assert told_operations or asked <= declared(case)


def test_every_api_with_rights_has_a_case() -> None:
    cases = {case.api for case in (*COORDINATOR, *SHARD)}
    needing = {api.name for api in APIS if api.rights}
    assert cases == needing - NEVER_REFUSED
    assert needing >= NEVER_REFUSED
    free = {"ApiVersions", "GetTelemetrySubscriptions", "PushTelemetry"}
    free |= {"SaslHandshake", "SaslAuthenticate"}
    assert {api.name for api in APIS if not api.rights} == free


def test_lists_leave_out_what_a_client_may_not_see(bench: CoordinatorBench, tmp_path: Path) -> None:
    limited(bench, "alice")
    assert bench.ask("ListGroups", 5, ListGroupsRequest()).groups == []
    assert bench.ask("ListTransactions", 1, ListTransactionsRequest()).transaction_states == []
    shard = ShardBench(tmp_path / "shard", topic("seen"), topic("unseen"))
    limit_caller(shard, "alice", "WRITE TOPIC seen")
    answer = shard.ask("Metadata", 12, MetadataRequest(topics=None))
    assert [each.name for each in answer.topics] == ["seen"]
    assert denied_apis(bench.coordinator.access.audit) == set(), "nobody asked for them by name"
    assert denied_apis(shard.caller.rights.audit) == set()


def test_without_an_authorizer_nothing_is_asked(
    tmp_path: Path, asked: set[tuple[Operation, ResourceType]]
) -> None:
    bench = ShardBench(tmp_path, topic("t"))
    assert bench.caller.rights is EVERYTHING
    for case in SHARD:
        bench.ask(case.api, case.version, case.request)
    assert asked == set()
