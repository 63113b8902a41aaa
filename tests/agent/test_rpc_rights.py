"""The rights of each RPC, and the page that tells of them."""

from pathlib import Path

from smq.agent.proto import mq_agent_pb2, mq_broker_pb2
from smq.agent.rpc_rights import RPC_RIGHTS, page_rows, rights_of_rpc
from smq.app.agent.methods import BETWEEN_BROKERS
from smq.model.client_quotas import CONSUME, PRODUCE

BETWEEN = {
    *("PublisherToPubBalancer", "AssignTopicPartitions", "ClosePublishers", "CloseSubscribers"),
    *("PublishFollowMe", "SubscribeFollowMe"),
}


def test_each_rpc_that_is_served_has_a_row() -> None:
    services = [
        *mq_broker_pb2.DESCRIPTOR.services_by_name.values(),
        *mq_agent_pb2.DESCRIPTOR.services_by_name.values(),
    ]
    methods = {each.name for service in services for each in service.methods}
    assert methods - BETWEEN == {*RPC_RIGHTS}
    assert "brokers" in BETWEEN_BROKERS
    assert all(rights_of_rpc(each).needs == () for each in BETWEEN)


def test_records_count_for_quotas() -> None:
    counted = {method: found.quota for method, found in RPC_RIGHTS.items() if found.quota}
    writes = {"PublishMessage", "PublishRecord"}
    reads = {"SubscribeMessage", "SubscribeRecord", "FetchMessage", "GetUnflushedMessages"}
    assert counted == dict.fromkeys(writes, PRODUCE) | dict.fromkeys(reads, CONSUME)


def test_the_page_has_the_rows() -> None:
    page = Path("docs/seaweedmq.md").read_text()
    section = page.partition("\n### Rights\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:] == page_rows()
