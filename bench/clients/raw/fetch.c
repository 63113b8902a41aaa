// Fetch: one connection reads all partitions from the start, and from the start again when it has
// come to the end, until it has read enough. Only the headers of batches are looked at.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "run.h"
#include "wire.h"

enum { ANSWER_BYTES_MAX = 64 << 20, MAX_WAIT_MS = 0 };

typedef struct {
    int64_t wire_bytes, records, requests;
    int errors, last_error;
} Read;

static size_t put_request(uint8_t *request, const Options *options, const int64_t *offsets) {
    uint8_t *at = put_fetch_start(request, MAX_WAIT_MS, ANSWER_BYTES_MAX, options->topic,
                                  options->partitions);
    for (int i = 0; i < options->partitions; i++)
        at = put_fetch_partition(at, i, offsets[i], options->fetch_bytes);
    return end_request(request, at);
}

static void take(const uint8_t *response, int64_t *offsets, Read *total) {
    int partitions;
    const uint8_t *at = fetched_start(response, &partitions);
    while (partitions--) {
        FetchedPartition fetched;
        at = fetched_next(at, &fetched);
        if (fetched.error) {
            total->errors++;
            total->last_error = fetched.error;
        }
        Batches batches = {fetched.records, fetched.records + fetched.records_bytes};
        const uint8_t *batch, *last = NULL;
        while (next_batch(&batches, &batch)) {
            total->records += batch_count(batch);
            last = batch;
        }
        if (fetched.records_bytes > 0) total->wire_bytes += fetched.records_bytes;
        offsets[fetched.partition] = last ? batch_next_offset(last) : 0;
    }
}

int measure_fetch(const Options *options) {
    int64_t *offsets = calloc((size_t)options->partitions, sizeof *offsets);
    uint8_t *request = allocate(256 + (size_t)options->partitions * 16);
    size_t capacity = ANSWER_BYTES_MAX;
    uint8_t *response = allocate(capacity);
    uint32_t *latencies_ns = NULL;
    int fd = connect_broker(options);
    Read total = {0};
    uint64_t started_ns = now_ns();
    while (total.wire_bytes < options->bytes && total.errors == 0) {
        int64_t before = total.wire_bytes;
        uint64_t asked_ns = now_ns();
        send_all(fd, request, put_request(request, options, offsets));
        receive_response(fd, &response, &capacity);
        if (total.requests % 4096 == 0) {
            size_t room = (size_t)(total.requests + 4096) * sizeof *latencies_ns;
            if (!(latencies_ns = realloc(latencies_ns, room))) fail("no memory");
        }
        latencies_ns[total.requests++] = clamp_ns(now_ns() - asked_ns);
        take(response, offsets, &total);
        if (before == total.wire_bytes && before == 0) fail("the topic is empty");
    }
    double seconds = (double)(now_ns() - started_ns) / 1e9;
    close(fd);
    printf("{\"seconds\":%.4f,\"bytes\":%lld,\"records\":%lld,\"requests\":%lld", seconds,
           (long long)total.wire_bytes, (long long)total.records, (long long)total.requests);
    printf(",\"mb_s\":%.2f,\"msg_s\":%.0f", (double)total.wire_bytes / seconds / 1e6,
           (double)total.records / seconds);
    printf(",\"errors\":%d,\"last_error\":%d", total.errors, total.last_error);
    print_percentiles(latencies_ns, (size_t)total.requests);
    printf("}\n");
    return total.errors != 0;
}
