"""A request of each API that a shard answers, and the rights that it needs."""

from smq.wire.generated import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    update_features,
    write_txn_markers,
)
from tests.gateway.rights_case import CLUSTER, ON_CLUSTER, TOPIC, case, on_cluster

SHARD = (
    case(
        "Fetch",
        12,
        fetch.FetchRequest(
            max_wait_ms=0,
            session_epoch=-1,
            topics=[
                fetch.FetchTopic(
                    topic="t", partitions=[fetch.FetchPartition(partition_max_bytes=1000)]
                )
            ],
        ),
        TOPIC,
        "READ TOPIC t",
    ),
    case(
        "ListOffsets",
        5,
        list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)]
                )
            ]
        ),
        TOPIC,
        "DESCRIBE TOPIC t",
        "WRITE TOPIC t",
    ),
    case(
        "Metadata",
        12,
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="t")],
            include_topic_authorized_operations=True,
        ),
        TOPIC,
        "DESCRIBE TOPIC t",
        "READ TOPIC t",
    ),
    case(
        "DeleteRecords",
        2,
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsPartition(offset=0)]
                )
            ]
        ),
        TOPIC,
        "DELETE TOPIC t",
    ),
    case(
        "OffsetForLeaderEpoch",
        4,
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t", partitions=[offset_for_leader_epoch.OffsetForLeaderPartition()]
                )
            ]
        ),
        TOPIC,
        "DESCRIBE TOPIC t",
        f"CLUSTER_ACTION {ON_CLUSTER}",
    ),
    case(
        "DescribeProducers",
        0,
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        TOPIC,
        "READ TOPIC t",
    ),
    case(
        "DescribeTopicPartitions",
        0,
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")]
        ),
        TOPIC,
        "DESCRIBE TOPIC t",
    ),
    case(
        "WriteTxnMarkers",
        1,
        write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=5,
                    topics=[
                        write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
                    ],
                )
            ]
        ),
        CLUSTER,
        f"ALTER {ON_CLUSTER}",
        f"CLUSTER_ACTION {ON_CLUSTER}",
    ),
    on_cluster(
        "AlterReplicaLogDirs",
        2,
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])
                    ],
                )
            ]
        ),
        "ALTER",
    ),
    on_cluster(
        "DescribeLogDirs", 4, describe_log_dirs.DescribeLogDirsRequest(topics=None), "DESCRIBE"
    ),
    on_cluster(
        "ElectLeaders",
        2,
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[0])]
        ),
        "ALTER",
    ),
    on_cluster(
        "AlterPartitionReassignments",
        0,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="t",
                    partitions=[alter_partition_reassignments.ReassignablePartition(replicas=[1])],
                )
            ]
        ),
        "ALTER",
    ),
    on_cluster(
        "ListPartitionReassignments",
        0,
        list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=[
                list_partition_reassignments.ListPartitionReassignmentsTopics(
                    name="t", partition_indexes=[0]
                )
            ]
        ),
        "DESCRIBE",
    ),
    on_cluster("DescribeQuorum", 2, describe_quorum.DescribeQuorumRequest(), "DESCRIBE"),
    on_cluster("UpdateFeatures", 2, update_features.UpdateFeaturesRequest(), "ALTER"),
    on_cluster(
        "ListConfigResources",
        1,
        list_config_resources.ListConfigResourcesRequest(),
        "DESCRIBE_CONFIGS",
    ),
)
