"""Messages of consumer groups and their offsets. Notation: `notation.py`."""

GROUPS = """
OffsetCommit 8 versions 2-10 flexible 8+
    OffsetCommitRequest
        group_id                              string
        generation_id_or_member_epoch         int32                                =-1
        member_id                             string
        group_instance_id                     string?                        7+    =null
        retention_time_ms                     int64                          2-4   =-1
        topics                                []OffsetCommitRequestTopic
            name                              string                         2-9
            topic_id                          uuid                           10+
            partitions                        []OffsetCommitRequestPartition
                partition_index               int32
                committed_offset              int64
                committed_leader_epoch        int32                          6+    =-1
                committed_metadata            string?
    OffsetCommitResponse
        throttle_time_ms                      int32                          3+
        topics                                []OffsetCommitResponseTopic
            name                              string                         2-9
            topic_id                          uuid                           10+
            partitions                        []OffsetCommitResponsePartition
                partition_index               int32
                error_code                    int16

OffsetFetch 9 versions 1-10 flexible 6+
    OffsetFetchRequest
        group_id                              string                         1-7   >groups.group_id
        topics                                []OffsetFetchRequestTopics?2-7 1-7   >groups.topics
            name                              string
            partition_indexes                 []int32
        groups                                []OffsetFetchRequestGroup      8+
            group_id                          string
            member_id                         string?                        9+    =null
            member_epoch                      int32                          9+    =-1
            topics                            []OffsetFetchRequestTopics?
                name                          string                         8-9
                topic_id                      uuid                           10+
                partition_indexes             []int32
        require_stable                        bool                           7+
    OffsetFetchResponse
        throttle_time_ms                      int32                          3+
        topics                                []OffsetFetchResponseTopics    1-7   >groups.topics
            name                              string
            partitions                        []OffsetFetchResponsePartitions
                partition_index               int32
                committed_offset              int64
                committed_leader_epoch        int32                          5-7   =-1
                metadata                      string?
                error_code                    int16
        error_code                            int16    2-7  >groups.error_code
        groups                                []OffsetFetchResponseGroup     8+
            group_id                          string
            topics                            []OffsetFetchResponseTopics
                name                          string                         8-9
                topic_id                      uuid                           10+
                partitions                    []OffsetFetchResponsePartitions
                    partition_index           int32
                    committed_offset          int64
                    committed_leader_epoch    int32                                =-1
                    metadata                  string?
                    error_code                int16
            error_code                        int16

FindCoordinator 10 versions 0-6 flexible 3+
    FindCoordinatorRequest
        key                                   string                         0-3   >coordinator_keys
        key_type                              int8                           1+
        coordinator_keys                      []string                       4+
    FindCoordinatorResponse
        throttle_time_ms                      int32                          1+
        error_code                            int16    0-3  >coordinators.error_code
        error_message                         string?  1-3  >coordinators.error_message
        node_id                               int32    0-3  >coordinators.node_id
        host                                  string   0-3  >coordinators.host
        port                                  int32    0-3  >coordinators.port
        coordinators                          []Coordinator                  4+
            key                               string
            node_id                           int32
            host                              string
            port                              int32
            error_code                        int16
            error_message                     string?

JoinGroup 11 versions 0-9 flexible 6+
    JoinGroupRequest
        group_id                              string
        session_timeout_ms                    int32
        rebalance_timeout_ms                  int32                          1+    =-1
        member_id                             string
        group_instance_id                     string?                        5+    =null
        protocol_type                         string
        protocols                             []JoinGroupRequestProtocol
            name                              string
            metadata                          bytes
        reason                                string?                        8+    =null
    JoinGroupResponse
        throttle_time_ms                      int32                          2+
        error_code                            int16
        generation_id                         int32                                =-1
        protocol_type                         string?                        7+    =null
        protocol_name                         string?7+
        leader                                string
        skip_assignment                       bool                           9+
        member_id                             string
        members                               []JoinGroupResponseMember
            member_id                         string
            group_instance_id                 string?                        5+    =null
            metadata                          bytes

Heartbeat 12 versions 0-4 flexible 4+
    HeartbeatRequest
        group_id                              string
        generation_id                         int32
        member_id                             string
        group_instance_id                     string?                        3+    =null
    HeartbeatResponse
        throttle_time_ms                      int32                          1+
        error_code                            int16

LeaveGroup 13 versions 0-5 flexible 4+
    LeaveGroupRequest
        group_id                              string
        member_id                             string   0-2  >members.member_id
        members                               []MemberIdentity               3+
            member_id                         string
            group_instance_id                 string?                              =null
            reason                            string?                        5+    =null
    LeaveGroupResponse
        throttle_time_ms                      int32                          1+
        error_code                            int16    0-2  >members.error_code
        error_code                            int16                          3+
        members                               []MemberResponse               3+
            member_id                         string
            group_instance_id                 string?
            error_code                        int16

SyncGroup 14 versions 0-5 flexible 4+
    SyncGroupRequest
        group_id                              string
        generation_id                         int32
        member_id                             string
        group_instance_id                     string?                        3+    =null
        protocol_type                         string?                        5+    =null
        protocol_name                         string?                        5+    =null
        assignments                           []SyncGroupRequestAssignment
            member_id                         string
            assignment                        bytes
    SyncGroupResponse
        throttle_time_ms                      int32                          1+
        error_code                            int16
        protocol_type                         string?                        5+    =null
        protocol_name                         string?                        5+    =null
        assignment                            bytes

DescribeGroups 15 versions 0-6 flexible 5+
    DescribeGroupsRequest
        groups                                []string
        include_authorized_operations         bool                           3+
    DescribeGroupsResponse
        throttle_time_ms                      int32                          1+
        groups                                []DescribedGroup
            error_code                        int16
            error_message                     string?                        6+    =null
            group_id                          string
            group_state                       string
            protocol_type                     string
            protocol_data                     string
            members                           []DescribedGroupMember
                member_id                     string
                group_instance_id             string?                        4+    =null
                client_id                     string
                client_host                   string
                member_metadata               bytes
                member_assignment             bytes
            authorized_operations             int32                          3+    =int32_min

ListGroups 16 versions 0-5 flexible 3+
    ListGroupsRequest
        states_filter                         []string                       4+
        types_filter                          []string                       5+
    ListGroupsResponse
        throttle_time_ms                      int32                          1+
        error_code                            int16
        groups                                []ListedGroup
            group_id                          string
            protocol_type                     string
            group_state                       string                         4+
            group_type                        string                         5+

DeleteGroups 42 versions 0-2 flexible 2+
    DeleteGroupsRequest
        groups_names                          []string
    DeleteGroupsResponse
        throttle_time_ms                      int32
        results                               []DeletableGroupResult
            group_id                          string
            error_code                        int16

OffsetDelete 47 versions 0-0 flexible 1+
    OffsetDeleteRequest
        group_id                              string
        topics                                []OffsetDeleteRequestTopic
            name                              string
            partitions                        []OffsetDeleteRequestPartition
                partition_index               int32
    OffsetDeleteResponse
        error_code                            int16
        throttle_time_ms                      int32
        topics                                []OffsetDeleteResponseTopic
            name                              string
            partitions                        []OffsetDeleteResponsePartition
                partition_index               int32
                error_code                    int16
"""
