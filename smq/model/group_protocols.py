"""The protocol types of groups that we look into. Others, as Connect's, are theirs alone."""

CONSUMER = "consumer"
SEAWEEDMQ = "seaweedmq"
"""Of a group whose partitions the agent shares among subscribers of SeaweedMQ's services."""
SHARING = "smq.agent.sharing"
"""The protocol of such a group: what decides who has which partition."""


def assigns_partitions(protocol_type: str | None) -> bool:
    """Whether members' assignments are partitions, as consumers of Kafka write them."""
    return protocol_type in {CONSUMER, SEAWEEDMQ}
