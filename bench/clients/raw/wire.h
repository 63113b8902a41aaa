// Kafka's wire format, as much of it as a client needs that encodes its requests once and sends
// them again and again: so that a benchmark measures the broker and not its client.
//
// Produce v7, Fetch v4 and ApiVersions v0: old versions without tagged fields, that every broker
// serves. Functions that write take the place to write at and return the place after it.
#ifndef SMQ_BENCH_WIRE_H
#define SMQ_BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PRODUCE = 0, FETCH = 1, API_VERSIONS = 18 };
enum { PRODUCE_VERSION = 7, FETCH_VERSION = 4, API_VERSIONS_VERSION = 0 };
enum { BATCH_HEADER_BYTES = 61, RECORD_OVERHEAD_MAX = 32, TIMESTAMP_BYTES = 8 };

uint8_t *put8(uint8_t *at, int value);
uint8_t *put16(uint8_t *at, int value);
uint8_t *put32(uint8_t *at, int32_t value);
uint8_t *put64(uint8_t *at, int64_t value);
uint8_t *put_string(uint8_t *at, const char *text);
int16_t get16(const uint8_t *at);
int32_t get32(const uint8_t *at);
int64_t get64(const uint8_t *at);
const uint8_t *get_varint(const uint8_t *at, int64_t *value);

// A request: start it, put its body, end it. `end_request` returns how many bytes to send.
uint8_t *start_request(uint8_t *request, int api_key, int api_version, int32_t correlation_id);
size_t end_request(uint8_t *request, const uint8_t *end);

// One record batch of `count` records with values of `value_bytes` that compress badly.
// `stamps`, if any, go into the first eight bytes of each value. Returns the batch's length.
size_t put_batch(uint8_t *batch, int count, int value_bytes, const uint64_t *stamps);
size_t batch_bytes_max(int count, int value_bytes);

// A whole Produce request for one partition; returns its length.
size_t put_produce(uint8_t *request, const char *topic, int partition, int acks,
                   const uint8_t *batch, size_t batch_bytes);
size_t produce_overhead_max(const char *topic);

// The first error code of a Produce response.
int produce_error(const uint8_t *response);

uint8_t *put_fetch_start(uint8_t *request, int max_wait_ms, int32_t max_bytes, const char *topic,
                         int partitions);
uint8_t *put_fetch_partition(uint8_t *at, int partition, int64_t offset, int32_t max_bytes);

// The partitions of a Fetch response of one topic, one call each.
typedef struct {
    int partition;
    int error;
    const uint8_t *records;
    int32_t records_bytes;
} FetchedPartition;
const uint8_t *fetched_start(const uint8_t *response, int *partitions);
const uint8_t *fetched_next(const uint8_t *at, FetchedPartition *fetched);

// The whole batches in some records: `false` when none is left.
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Batches;
bool next_batch(Batches *batches, const uint8_t **batch);
int64_t batch_next_offset(const uint8_t *batch);
int32_t batch_count(const uint8_t *batch);

#endif
