"""The RPCs of SeaweedMQ's services, in the order of their counters in shared memory."""

RPCS: tuple[tuple[str, str], ...] = (
    *(
        ("messaging_pb.SeaweedMessaging", method)
        for method in (
            *("FindBrokerLeader", "PublisherToPubBalancer", "BalanceTopics", "ListTopics"),
            *("TopicExists", "ConfigureTopic", "LookupTopicBrokers", "GetTopicConfiguration"),
            *("GetTopicPublishers", "GetTopicSubscribers", "AssignTopicPartitions"),
            *("ClosePublishers", "CloseSubscribers", "SubscriberToSubCoordinator"),
            *("PublishMessage", "SubscribeMessage", "PublishFollowMe", "SubscribeFollowMe"),
            *("FetchMessage", "GetUnflushedMessages", "GetPartitionRangeInfo"),
        )
    ),
    *(
        ("messaging_pb.SeaweedMessagingAgent", method)
        for method in (
            *("StartPublishSession", "ClosePublishSession", "PublishRecord", "SubscribeRecord"),
        )
    ),
    *(("grpc.health.v1.Health", method) for method in ("Check", "Watch")),
    ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"),
)
STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
"""Of gRPC, by number."""
