"""Messages of transactions. Notation: `notation.py`."""

TRANSACTIONS = """
AddPartitionsToTxn 24 versions 0-5 flexible 3+
    AddPartitionsToTxnRequest
        transactions                          []AddPartitionsToTxnTransaction      4+
            transactional_id                  string
            producer_id                       int64
            producer_epoch                    int16
            verify_only                       bool                                 =false
            topics                            []AddPartitionsToTxnTopic
                name                          string
                partitions                    []int32
        v3_and_below_transactional_id         string   0-3  >transactions.transactional_id
        v3_and_below_producer_id              int64    0-3  >transactions.producer_id
        v3_and_below_producer_epoch           int16    0-3  >transactions.producer_epoch
        v3_and_below_topics                   []AddPartitionsToTxnTopic 0-3  >transactions.topics
            name                              string
            partitions                        []int32
    AddPartitionsToTxnResponse
        throttle_time_ms                      int32
        error_code                            int16                          4+
        results_by_transaction                []AddPartitionsToTxnResult     4+
            transactional_id                  string
            topic_results                     []AddPartitionsToTxnTopicResult
                name                          string
                results_by_partition          []AddPartitionsToTxnPartitionResult
                    partition_index           int32
                    partition_error_code      int16
        results_by_topic_v3_and_below         []AddPartitionsToTxnTopicResult 0-3
            >results_by_transaction.topic_results
            name                              string
            results_by_partition              []AddPartitionsToTxnPartitionResult
                partition_index               int32
                partition_error_code          int16

AddOffsetsToTxn 25 versions 0-4 flexible 3+
    AddOffsetsToTxnRequest
        transactional_id                      string
        producer_id                           int64
        producer_epoch                        int16
        group_id                              string
    AddOffsetsToTxnResponse
        throttle_time_ms                      int32
        error_code                            int16

EndTxn 26 versions 0-5 flexible 3+
    EndTxnRequest
        transactional_id                      string
        producer_id                           int64
        producer_epoch                        int16
        committed                             bool
    EndTxnResponse
        throttle_time_ms                      int32
        error_code                            int16
        producer_id                           int64                          5+    =-1
        producer_epoch                        int16                          5+    =-1

WriteTxnMarkers 27 versions 1-2 flexible 1+
    WriteTxnMarkersRequest
        markers                               []WritableTxnMarker
            producer_id                       int64
            producer_epoch                    int16
            transaction_result                bool
            topics                            []WritableTxnMarkerTopic
                name                          string
                partition_indexes             []int32
            coordinator_epoch                 int32
            transaction_version               int8                           2+
    WriteTxnMarkersResponse
        markers                               []WritableTxnMarkerResult
            producer_id                       int64
            topics                            []WritableTxnMarkerTopicResult
                name                          string
                partitions                    []WritableTxnMarkerPartitionResult
                    partition_index           int32
                    error_code                int16

TxnOffsetCommit 28 versions 0-5 flexible 3+
    TxnOffsetCommitRequest
        transactional_id                      string
        group_id                              string
        producer_id                           int64
        producer_epoch                        int16
        generation_id                         int32                          3+    =-1
        member_id                             string                         3+
        group_instance_id                     string?                        3+    =null
        topics                                []TxnOffsetCommitRequestTopic
            name                              string
            partitions                        []TxnOffsetCommitRequestPartition
                partition_index               int32
                committed_offset              int64
                committed_leader_epoch        int32                          2+    =-1
                committed_metadata            string?
    TxnOffsetCommitResponse
        throttle_time_ms                      int32
        topics                                []TxnOffsetCommitResponseTopic
            name                              string
            partitions                        []TxnOffsetCommitResponsePartition
                partition_index               int32
                error_code                    int16

DescribeProducers 61 versions 0-0 flexible 0+
    DescribeProducersRequest
        topics                                []TopicRequest
            name                              string
            partition_indexes                 []int32
    DescribeProducersResponse
        throttle_time_ms                      int32
        topics                                []TopicResponse
            name                              string
            partitions                        []PartitionResponse
                partition_index               int32
                error_code                    int16
                error_message                 string?                        0+    =null
                active_producers              []ProducerState
                    producer_id               int64
                    producer_epoch            int32
                    last_sequence             int32                          =-1
                    last_timestamp            int64                          =-1
                    coordinator_epoch         int32
                    current_txn_start_offset  int64                          =-1

DescribeTransactions 65 versions 0-0 flexible 0+
    DescribeTransactionsRequest
        transactional_ids                     []string
    DescribeTransactionsResponse
        throttle_time_ms                      int32
        transaction_states                    []TransactionState
            error_code                        int16
            transactional_id                  string
            transaction_state                 string
            transaction_timeout_ms            int32
            transaction_start_time_ms         int64
            producer_id                       int64
            producer_epoch                    int16
            topics                            []TopicData
                topic                         string
                partitions                    []int32

ListTransactions 66 versions 0-2 flexible 0+
    ListTransactionsRequest
        state_filters                         []string
        producer_id_filters                   []int64
        duration_filter                       int64                          1+    =-1
        transactional_id_pattern              string?                        2+    =null
    ListTransactionsResponse
        throttle_time_ms                      int32
        error_code                            int16
        unknown_state_filters                 []string
        transaction_states                    []TransactionState
            transactional_id                  string
            producer_id                       int64
            transaction_state                 string
"""
