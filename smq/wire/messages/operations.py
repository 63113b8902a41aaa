"""Messages about log directories, features, and more. Notation: `notation.py`."""

OPERATIONS = """
SaslHandshake 17 versions 0-1 flexible 2+
    SaslHandshakeRequest
        mechanism                              string
    SaslHandshakeResponse
        error_code                             int16
        mechanisms                             []string

SaslAuthenticate 36 versions 0-2 flexible 2+
    SaslAuthenticateRequest
        auth_bytes                             bytes
    SaslAuthenticateResponse
        error_code                             int16
        error_message                          string?
        auth_bytes                             bytes
        session_lifetime_ms                    int64                  1+

AlterReplicaLogDirs 34 versions 1-2 flexible 2+
    AlterReplicaLogDirsRequest
        dirs                                   []AlterReplicaLogDir
            path                               string
            topics                             []AlterReplicaLogDirTopic
                name                           string
                partitions                     []int32
    AlterReplicaLogDirsResponse
        throttle_time_ms                       int32
        results                                []AlterReplicaLogDirTopicResult
            topic_name                         string
            partitions                         []AlterReplicaLogDirPartitionResult
                partition_index                int32
                error_code                     int16

DescribeLogDirs 35 versions 1-5 flexible 2+
    DescribeLogDirsRequest
        topics                                 []DescribableLogDirTopic?
            topic                              string
            partitions                         []int32
    DescribeLogDirsResponse
        throttle_time_ms                       int32
        error_code                             int16                  3+
        results                                []DescribeLogDirsResult
            error_code                         int16
            log_dir                            string
            topics                             []DescribeLogDirsTopic
                name                           string
                partitions                     []DescribeLogDirsPartition
                    partition_index            int32
                    partition_size             int64
                    offset_lag                 int64
                    is_future_key              bool
            total_bytes                        int64                  4+   =-1
            usable_bytes                       int64                  4+   =-1
            is_cordoned                        bool                   5+

AlterPartitionReassignments 45 versions 0-1 flexible 0+
    AlterPartitionReassignmentsRequest
        timeout_ms                             int32                       =60000
        allow_replication_factor_change        bool                   1+   =true
        topics                                 []ReassignableTopic
            name                               string
            partitions                         []ReassignablePartition
                partition_index                int32
                replicas                       []int32?                    =null
    AlterPartitionReassignmentsResponse
        throttle_time_ms                       int32
        allow_replication_factor_change        bool                   1+   =true
        error_code                             int16
        error_message                          string?
        responses                              []ReassignableTopicResponse
            name                               string
            partitions                         []ReassignablePartitionResponse
                partition_index                int32
                error_code                     int16
                error_message                  string?

DescribeQuorum 55 versions 0-2 flexible 0+
    DescribeQuorumRequest
        topics                                 []DescribeQuorumRequestTopicData
            topic_name                         string
            partitions                         []DescribeQuorumRequestPartitionData
                partition_index                int32
    DescribeQuorumResponse
        error_code                             int16
        error_message                          string?                2+
        topics                                 []TopicData
            topic_name                         string
            partitions                         []PartitionData
                partition_index                int32
                error_code                     int16
                error_message                  string?                2+
                leader_id                      int32
                leader_epoch                   int32
                high_watermark                 int64
                current_voters                 []ReplicaState
                    replica_id                 int32
                    replica_directory_id       uuid                   2+
                    log_end_offset             int64
                    last_fetch_timestamp       int64                  1+   =-1
                    last_caught_up_timestamp   int64                  1+   =-1
                observers                      []ReplicaState
                    replica_id                 int32
                    replica_directory_id       uuid                   2+
                    log_end_offset             int64
                    last_fetch_timestamp       int64                  1+   =-1
                    last_caught_up_timestamp   int64                  1+   =-1
        nodes                                  []Node                 2+
            node_id                            int32
            listeners                          []Listener
                name                           string
                host                           string
                port                           uint16

UpdateFeatures 57 versions 0-2 flexible 0+
    UpdateFeaturesRequest
        timeout_ms                             int32                       =60000
        feature_updates                        []FeatureUpdateKey
            feature                            string
            max_version_level                  int16
            allow_downgrade                    bool                   0
            upgrade_type                       int8                   1+   =1
        validate_only                          bool                   1+
    UpdateFeaturesResponse
        throttle_time_ms                       int32
        error_code                             int16
        error_message                          string?
        results                                []UpdatableFeatureResult 0-1
            feature                            string
            error_code                         int16
            error_message                      string?

GetTelemetrySubscriptions 71 versions 0-0 flexible 0+
    GetTelemetrySubscriptionsRequest
        client_instance_id                     uuid
    GetTelemetrySubscriptionsResponse
        throttle_time_ms                       int32
        error_code                             int16
        client_instance_id                     uuid
        subscription_id                        int32
        accepted_compression_types             []int8
        push_interval_ms                       int32
        telemetry_max_bytes                    int32
        delta_temporality                      bool
        requested_metrics                      []string

PushTelemetry 72 versions 0-0 flexible 0+
    PushTelemetryRequest
        client_instance_id                     uuid
        subscription_id                        int32
        terminating                            bool
        compression_type                       int8
        metrics                                bytes
    PushTelemetryResponse
        throttle_time_ms                       int32
        error_code                             int16

ListConfigResources 74 versions 0-1 flexible 0+
    ListConfigResourcesRequest
        resource_types                         []int8                 1+
    ListConfigResourcesResponse
        throttle_time_ms                       int32
        error_code                             int16
        config_resources                       []ConfigResource
            resource_name                      string
            resource_type                      int8                   1+   =16

DescribeTopicPartitions 75 versions 0-0 flexible 0+
    DescribeTopicPartitionsRequest
        topics                                 []TopicRequest
            name                               string
        response_partition_limit               int32                       =2000
        cursor                                 Cursor?                     =null
            topic_name                         string
            partition_index                    int32
    DescribeTopicPartitionsResponse
        throttle_time_ms                       int32
        topics                                 []DescribeTopicPartitionsResponseTopic
            error_code                         int16
            name                               string?
            topic_id                           uuid
            is_internal                        bool
            partitions                         []DescribeTopicPartitionsResponsePartition
                error_code                     int16
                partition_index                int32
                leader_id                      int32
                leader_epoch                   int32                       =-1
                replica_nodes                  []int32
                isr_nodes                      []int32
                eligible_leader_replicas       []int32?                    =null
                last_known_elr                 []int32?                    =null
                offline_replicas               []int32
            topic_authorized_operations        int32                       =int32_min
        next_cursor                            Cursor?                     =null
            topic_name                         string
            partition_index                    int32
"""
