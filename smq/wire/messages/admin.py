"""Messages about topics, configurations and the cluster. Notation: `notation.py`."""

ADMIN = """
Metadata 3 versions 0-13 flexible 9+
    MetadataRequest
        topics                                []MetadataRequestTopic?1+
            topic_id                          uuid                           10+
            name                              string?10+
        allow_auto_topic_creation             bool                           4+    =true
        include_cluster_authorized_operations bool                           8-10
        include_topic_authorized_operations   bool                           8+
    MetadataResponse
        throttle_time_ms                      int32                          3+
        brokers                               []MetadataResponseBroker
            node_id                           int32
            host                              string
            port                              int32
            rack                              string?                        1+    =null
        cluster_id                            string?                        2+    =null
        controller_id                         int32                          1+    =-1
        topics                                []MetadataResponseTopic
            error_code                        int16
            name                              string?12+
            topic_id                          uuid                           10+
            is_internal                       bool                           1+
            partitions                        []MetadataResponsePartition
                error_code                    int16
                partition_index               int32
                leader_id                     int32
                leader_epoch                  int32                          7+    =-1
                replica_nodes                 []int32
                isr_nodes                     []int32
                offline_replicas              []int32                        5+
            topic_authorized_operations       int32                          8+    =int32_min
        cluster_authorized_operations         int32                          8-10  =int32_min
        error_code                            int16                          13+

ApiVersions 18 versions 0-4 flexible 3+
    ApiVersionsRequest
        client_software_name                  string                         3+
        client_software_version               string                         3+
    ApiVersionsResponse
        error_code                            int16
        api_keys                              []ApiVersion
            api_key                           int16
            min_version                       int16
            max_version                       int16
        throttle_time_ms                      int32                          1+
        supported_features                    []SupportedFeatureKey          3+    tag=0
            name                              string
            min_version                       int16
            max_version                       int16
        finalized_features_epoch              int64                          3+    =-1 tag=1
        finalized_features                    []FinalizedFeatureKey          3+    tag=2
            name                              string
            max_version_level                 int16
            min_version_level                 int16
        zk_migration_ready                    bool                           3+    tag=3

CreateTopics 19 versions 2-7 flexible 5+
    CreateTopicsRequest
        topics                                []CreatableTopic
            name                              string
            num_partitions                    int32
            replication_factor                int16
            assignments                       []CreatableReplicaAssignment
                partition_index               int32
                broker_ids                    []int32
            configs                           []CreatableTopicConfig
                name                          string
                value                         string?
        timeout_ms                            int32                                =60000
        validate_only                         bool
    CreateTopicsResponse
        throttle_time_ms                      int32
        topics                                []CreatableTopicResult
            name                              string
            topic_id                          uuid                           7+
            error_code                        int16
            error_message                     string?
            topic_config_error_code           int16                          5+    tag=0
            num_partitions                    int32                          5+    =-1
            replication_factor                int16                          5+    =-1
            configs                           []CreatableTopicConfigs?       5+
                name                          string
                value                         string?
                read_only                     bool
                config_source                 int8                                 =-1
                is_sensitive                  bool

DeleteTopics 20 versions 1-6 flexible 4+
    DeleteTopicsRequest
        topics                                []DeleteTopicState             6+
            name                              string?                              =null
            topic_id                          uuid
        topic_names                           []string                       1-5   >topics.name
        timeout_ms                            int32
    DeleteTopicsResponse
        throttle_time_ms                      int32
        responses                             []DeletableTopicResult
            name                              string?6+
            topic_id                          uuid                           6+
            error_code                        int16
            error_message                     string?                        5+    =null

DeleteRecords 21 versions 0-2 flexible 2+
    DeleteRecordsRequest
        topics                                []DeleteRecordsTopic
            name                              string
            partitions                        []DeleteRecordsPartition
                partition_index               int32
                offset                        int64
        timeout_ms                            int32
    DeleteRecordsResponse
        throttle_time_ms                      int32
        topics                                []DeleteRecordsTopicResult
            name                              string
            partitions                        []DeleteRecordsPartitionResult
                partition_index               int32
                low_watermark                 int64
                error_code                    int16

DescribeAcls 29 versions 1-3 flexible 2+
    DescribeAclsRequest
        resource_type_filter                  int8
        resource_name_filter                  string?
        pattern_type_filter                   int8                                 =3
        principal_filter                      string?
        host_filter                           string?
        operation                             int8
        permission_type                       int8
    DescribeAclsResponse
        throttle_time_ms                      int32
        error_code                            int16
        error_message                         string?
        resources                             []DescribeAclsResource
            resource_type                     int8
            resource_name                     string
            pattern_type                      int8                                 =3
            acls                              []AclDescription
                principal                     string
                host                          string
                operation                     int8
                permission_type               int8

CreateAcls 30 versions 1-3 flexible 2+
    CreateAclsRequest
        creations                             []AclCreation
            resource_type                     int8
            resource_name                     string
            resource_pattern_type             int8                                 =3
            principal                         string
            host                              string
            operation                         int8
            permission_type                   int8
    CreateAclsResponse
        throttle_time_ms                      int32
        results                               []AclCreationResult
            error_code                        int16
            error_message                     string?

DeleteAcls 31 versions 1-3 flexible 2+
    DeleteAclsRequest
        filters                               []DeleteAclsFilter
            resource_type_filter              int8
            resource_name_filter              string?
            pattern_type_filter               int8                                 =3
            principal_filter                  string?
            host_filter                       string?
            operation                         int8
            permission_type                   int8
    DeleteAclsResponse
        throttle_time_ms                      int32
        filter_results                        []DeleteAclsFilterResult
            error_code                        int16
            error_message                     string?
            matching_acls                     []DeleteAclsMatchingAcl
                error_code                    int16
                error_message                 string?
                resource_type                 int8
                resource_name                 string
                pattern_type                  int8                                 =3
                principal                     string
                host                          string
                operation                     int8
                permission_type               int8

DescribeConfigs 32 versions 1-4 flexible 4+
    DescribeConfigsRequest
        resources                             []DescribeConfigsResource
            resource_type                     int8
            resource_name                     string
            configuration_keys                []string?
        include_synonyms                      bool
        include_documentation                 bool                           3+
    DescribeConfigsResponse
        throttle_time_ms                      int32
        results                               []DescribeConfigsResult
            error_code                        int16
            error_message                     string?
            resource_type                     int8
            resource_name                     string
            configs                           []DescribeConfigsResourceResult
                name                          string
                value                         string?
                read_only                     bool
                config_source                 int8                                 =-1
                is_sensitive                  bool
                synonyms                      []DescribeConfigsSynonym
                    name                      string
                    value                     string?
                    source                    int8
                config_type                   int8                           3+
                documentation                 string?                        3+

AlterConfigs 33 versions 0-2 flexible 2+
    AlterConfigsRequest
        resources                             []AlterConfigsResource
            resource_type                     int8
            resource_name                     string
            configs                           []AlterableConfig
                name                          string
                value                         string?
        validate_only                         bool
    AlterConfigsResponse
        throttle_time_ms                      int32
        responses                             []AlterConfigsResourceResponse
            error_code                        int16
            error_message                     string?
            resource_type                     int8
            resource_name                     string

CreatePartitions 37 versions 0-3 flexible 2+
    CreatePartitionsRequest
        topics                                []CreatePartitionsTopic
            name                              string
            count                             int32
            assignments                       []CreatePartitionsAssignment?
                broker_ids                    []int32
        timeout_ms                            int32
        validate_only                         bool
    CreatePartitionsResponse
        throttle_time_ms                      int32
        results                               []CreatePartitionsTopicResult
            name                              string
            error_code                        int16
            error_message                     string?                              =null

IncrementalAlterConfigs 44 versions 0-1 flexible 1+
    IncrementalAlterConfigsRequest
        resources                             []AlterConfigsResource
            resource_type                     int8
            resource_name                     string
            configs                           []AlterableConfig
                name                          string
                config_operation              int8
                value                         string?
        validate_only                         bool
    IncrementalAlterConfigsResponse
        throttle_time_ms                      int32
        responses                             []AlterConfigsResourceResponse
            error_code                        int16
            error_message                     string?
            resource_type                     int8
            resource_name                     string

ElectLeaders 43 versions 0-2 flexible 2+
    ElectLeadersRequest
        election_type                         int8                           1+
        topic_partitions                      []TopicPartitions?
            topic                             string
            partitions                        []int32
        timeout_ms                            int32                                =60000
    ElectLeadersResponse
        throttle_time_ms                      int32
        error_code                            int16                          1+
        replica_election_results              []ReplicaElectionResult
            topic                             string
            partition_result                  []PartitionResult
                partition_id                  int32
                error_code                    int16
                error_message                 string?

ListPartitionReassignments 46 versions 0-0 flexible 0+
    ListPartitionReassignmentsRequest
        timeout_ms                            int32                                =60000
        topics                                []ListPartitionReassignmentsTopics?  =null
            name                              string
            partition_indexes                 []int32
    ListPartitionReassignmentsResponse
        throttle_time_ms                      int32
        error_code                            int16
        error_message                         string?
        topics                                []OngoingTopicReassignment
            name                              string
            partitions                        []OngoingPartitionReassignment
                partition_index               int32
                replicas                      []int32
                adding_replicas               []int32
                removing_replicas             []int32

DescribeCluster 60 versions 0-2 flexible 0+
    DescribeClusterRequest
        include_cluster_authorized_operations bool
        endpoint_type                         int8                           1+    =1
        include_fenced_brokers                bool                           2+
    DescribeClusterResponse
        throttle_time_ms                      int32
        error_code                            int16
        error_message                         string?                              =null
        endpoint_type                         int8                           1+    =1
        cluster_id                            string
        controller_id                         int32                                =-1
        brokers                               []DescribeClusterBroker
            broker_id                         int32
            host                              string
            port                              int32
            rack                              string?                              =null
            is_fenced                         bool                           2+
        cluster_authorized_operations         int32                                =int32_min
"""
