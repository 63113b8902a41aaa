"""A request of each API that the coordinator answers, and the rights that it needs."""

from smq.wire.generated import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from tests.gateway.rights_case import CLUSTER, GROUP, ON_CLUSTER, TOPIC, TXN, case, on_cluster

COORDINATOR = (
    case(
        "OffsetCommit",
        9,
        offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t", partitions=[offset_commit.OffsetCommitRequestPartition()]
                )
            ],
        ),
        GROUP,
        "READ GROUP g,READ TOPIC t",
    ),
    case(
        "OffsetFetch",
        9,
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                )
            ]
        ),
        GROUP,
        "DESCRIBE GROUP g,DESCRIBE TOPIC t",
        "READ GROUP g,READ TOPIC t",
    ),
    case(
        "FindCoordinator",
        4,
        find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        GROUP,
        "DESCRIBE GROUP g",
    ),
    case(
        "FindCoordinator",
        2,
        find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        TXN,
        "WRITE TRANSACTIONAL_ID x",
    ),
    on_cluster(
        "FindCoordinator",
        6,
        find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=["s"]),
        "CLUSTER_ACTION",
    ),
    case("JoinGroup", 9, join_group.JoinGroupRequest(group_id="g"), GROUP, "READ GROUP g"),
    case("Heartbeat", 4, heartbeat.HeartbeatRequest(group_id="g"), GROUP, "READ GROUP g"),
    case("LeaveGroup", 5, leave_group.LeaveGroupRequest(group_id="g"), GROUP, "READ GROUP g"),
    case("SyncGroup", 4, sync_group.SyncGroupRequest(group_id="g"), GROUP, "READ GROUP g"),
    case(
        "DescribeGroups",
        5,
        describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True),
        GROUP,
        "DESCRIBE GROUP g",
        "DELETE GROUP g",
    ),
    case(
        "DeleteGroups",
        2,
        delete_groups.DeleteGroupsRequest(groups_names=["g"]),
        GROUP,
        "DELETE GROUP g",
    ),
    case(
        "OffsetDelete",
        0,
        offset_delete.OffsetDeleteRequest(
            group_id="g",
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name="t", partitions=[offset_delete.OffsetDeleteRequestPartition()]
                )
            ],
        ),
        GROUP,
        "DELETE GROUP g,READ TOPIC t",
    ),
    case(
        "CreateTopics",
        5,
        create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(name="n", num_partitions=1, replication_factor=1)]
        ),
        TOPIC,
        "CREATE TOPIC n",
        f"CREATE {ON_CLUSTER}",
    ),
    case(
        "DeleteTopics",
        6,
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="t")]),
        TOPIC,
        "DELETE TOPIC t",
        f"DELETE {ON_CLUSTER}",
    ),
    case(
        "CreatePartitions",
        3,
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=3)]
        ),
        TOPIC,
        "ALTER TOPIC t",
    ),
    case(
        "InitProducerId",
        4,
        init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        CLUSTER,
        f"IDEMPOTENT_WRITE {ON_CLUSTER}",
        "WRITE TOPIC anything",
    ),
    case(
        "InitProducerId",
        4,
        init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        TXN,
        "WRITE TRANSACTIONAL_ID x",
    ),
    case(
        "AddPartitionsToTxn",
        3,
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactions=[
                add_partitions_to_txn.AddPartitionsToTxnTransaction(
                    transactional_id="x",
                    topics=[
                        add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])
                    ],
                )
            ]
        ),
        TXN,
        "WRITE TRANSACTIONAL_ID x,WRITE TOPIC t",
    ),
    on_cluster(
        "AddPartitionsToTxn",
        4,
        add_partitions_to_txn.AddPartitionsToTxnRequest(),
        "CLUSTER_ACTION",
    ),
    case(
        "AddOffsetsToTxn",
        3,
        add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
        TXN,
        "WRITE TRANSACTIONAL_ID x,READ GROUP g",
    ),
    case("EndTxn", 4, end_txn.EndTxnRequest(transactional_id="x"), TXN, "WRITE TRANSACTIONAL_ID x"),
    case(
        "TxnOffsetCommit",
        3,
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name="t", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition()]
                )
            ],
        ),
        TXN,
        "WRITE TRANSACTIONAL_ID x,READ GROUP g,READ TOPIC t",
    ),
    case(
        "DescribeTransactions",
        0,
        describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
        TXN,
        "DESCRIBE TRANSACTIONAL_ID x",
    ),
    *(
        case(
            "DescribeConfigs",
            4,
            describe_configs.DescribeConfigsRequest(
                resources=[
                    describe_configs.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                ]
            ),
            told,
            right,
        )
        for kind, name, told, right in (
            (2, "t", TOPIC, "DESCRIBE_CONFIGS TOPIC t"),
            (32, "g", GROUP, "ALTER_CONFIGS GROUP g"),
            (4, "1", CLUSTER, f"DESCRIBE_CONFIGS {ON_CLUSTER}"),
        )
    ),
    case(
        "AlterConfigs",
        2,
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
        TOPIC,
        "ALTER_CONFIGS TOPIC t",
    ),
    case(
        "IncrementalAlterConfigs",
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="")
            ]
        ),
        CLUSTER,
        f"ALTER_CONFIGS {ON_CLUSTER}",
    ),
    on_cluster(
        "DescribeClientQuotas",
        1,
        describe_client_quotas.DescribeClientQuotasRequest(),
        "DESCRIBE_CONFIGS",
    ),
    on_cluster(
        "AlterClientQuotas",
        1,
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.QuotaEntry(
                    entity=[
                        alter_client_quotas.QuotaEntity(entity_type="client-id", entity_name="c")
                    ]
                )
            ]
        ),
        "ALTER_CONFIGS",
    ),
    on_cluster(
        "DescribeAcls",
        3,
        describe_acls.DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
        "ALTER",
    ),
    on_cluster(
        "CreateAcls",
        3,
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=2,
                    resource_name="a",
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        "ALTER",
    ),
    on_cluster(
        "DeleteAcls",
        3,
        delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="no",
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        "ALTER",
    ),
    on_cluster(
        "DescribeUserScramCredentials",
        0,
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None),
        "DESCRIBE",
    ),
    on_cluster(
        "AlterUserScramCredentials",
        0,
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="a", mechanism=1)]
        ),
        "ALTER",
    ),
)
