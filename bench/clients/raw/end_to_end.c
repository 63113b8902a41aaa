// End to end: one connection produces at a rate, as a client with linger 0 would (whatever is due
// goes in one batch, five requests on their way at most), another reads with long polls. A record's
// latency is from the moment it was due to the moment its Fetch answer was read: being late counts.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "run.h"
#include "wire.h"

enum { ON_THEIR_WAY_MAX = 5, BATCH_RECORDS_MAX = 5000, MAX_WAIT_MS = 500 };
static const uint64_t SECOND_NS = 1000000000;
static const uint64_t WARM_UP_NS = 1000000000;
static const uint64_t SILENCE_NS_MAX = 5000000000;
static const unsigned long TIMER_SLACK_NS = 1000;  // The usual 50 us are nobody's latency but ours.

typedef struct {
    const Options *options;
    uint64_t start_ns;
    int64_t sent;
    atomic_int errors;
} Producer;

typedef struct {
    int fd, on_their_way;
    uint8_t *response;
    size_t capacity;
} Pipe;

static void take_answer(Producer *own, Pipe *pipe) {
    receive_response(pipe->fd, &pipe->response, &pipe->capacity);
    pipe->on_their_way--;
    if (produce_error(pipe->response)) atomic_fetch_add(&own->errors, 1);
}

static void wait_until(Producer *own, Pipe *pipe, uint64_t due_ns, uint64_t now) {
    struct pollfd answer = {.fd = pipe->fd, .events = POLLIN};
    uint64_t wait_ns = due_ns - now;
    struct timespec wait = {(time_t)(wait_ns / SECOND_NS), (long)(wait_ns % SECOND_NS)};
    if (ppoll(&answer, 1, &wait, NULL) > 0) take_answer(own, pipe);
}

static void *produce(void *argument) {
    Producer *own = argument;
    const Options *options = own->options;
    uint64_t interval_ns = (uint64_t)(1e9 / options->rate), due_ns = own->start_ns;
    uint64_t end_ns = own->start_ns + (uint64_t)(options->seconds * 1e9);
    size_t room = batch_bytes_max(BATCH_RECORDS_MAX, options->record_bytes);
    uint8_t *batch = allocate(room), *request = allocate(room + produce_overhead_max(options->topic));
    uint64_t *stamps = allocate(BATCH_RECORDS_MAX * sizeof *stamps);
    Pipe pipe = {.fd = connect_broker(options), .response = allocate(1 << 12), .capacity = 1 << 12};
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    while (due_ns < end_ns) {
        uint64_t now = now_ns();
        if (due_ns > now) {
            wait_until(own, &pipe, due_ns, now);
            continue;
        }
        if (pipe.on_their_way == ON_THEIR_WAY_MAX) {
            take_answer(own, &pipe);
            continue;
        }
        int count = 0;
        for (; due_ns <= now && due_ns < end_ns && count < BATCH_RECORDS_MAX; due_ns += interval_ns)
            stamps[count++] = due_ns;
        size_t bytes = put_batch(batch, count, options->record_bytes, stamps);
        bytes = put_produce(request, options->topic, 0, options->acks, batch, bytes);
        send_all(pipe.fd, request, bytes);
        pipe.on_their_way++;
        own->sent += count;
    }
    while (pipe.on_their_way) take_answer(own, &pipe);
    close(pipe.fd);
    return NULL;
}

// Adds the latencies of a batch's records that were due after `from_ns`.
static size_t take_records(const uint8_t *batch, int record_bytes, uint64_t from_ns,
                           uint32_t *latencies_ns) {
    uint64_t now = now_ns();
    size_t taken = 0;
    const uint8_t *at = batch + BATCH_HEADER_BYTES;
    for (int32_t i = batch_count(batch); i > 0; i--) {
        int64_t length;
        at = get_varint(at, &length);
        at += length;
        uint64_t due_ns;
        memcpy(&due_ns, at - 1 - record_bytes, sizeof due_ns);
        if (due_ns >= from_ns) latencies_ns[taken++] = clamp_ns(now - due_ns);
    }
    return taken;
}

int measure_end_to_end(const Options *options) {
    Producer producer = {.options = options, .start_ns = now_ns() + SECOND_NS / 5};
    int64_t wanted = (int64_t)(options->rate * options->seconds), got = 0, offset = 0;
    uint32_t *latencies_ns = allocate((size_t)(wanted + BATCH_RECORDS_MAX) * sizeof *latencies_ns);
    size_t measured = 0, capacity = 1 << 20;
    uint8_t *response = allocate(capacity), request[512];
    int fd = connect_broker(options), fetch_errors = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, produce, &producer)) fail("pthread_create");
    uint64_t last_ns = now_ns();
    while (got < wanted && now_ns() - last_ns < SILENCE_NS_MAX && fetch_errors < 100) {
        uint8_t *at = put_fetch_start(request, MAX_WAIT_MS, 8 << 20, options->topic, 1);
        at = put_fetch_partition(at, 0, offset, 4 << 20);
        send_all(fd, request, end_request(request, at));
        receive_response(fd, &response, &capacity);
        int partitions;
        FetchedPartition fetched = {0};
        const uint8_t *start = fetched_start(response, &partitions);
        if (partitions) fetched_next(start, &fetched);
        fetch_errors += fetched.error != 0;
        Batches batches = {fetched.records, fetched.records + fetched.records_bytes};
        for (const uint8_t *batch; next_batch(&batches, &batch);) {
            if (batch_next_offset(batch) <= offset) continue;
            measured += take_records(batch, options->record_bytes,
                                     producer.start_ns + WARM_UP_NS, latencies_ns + measured);
            got += batch_count(batch);
            offset = batch_next_offset(batch);
            last_ns = now_ns();
        }
    }
    pthread_join(thread, NULL);
    int errors = fetch_errors + atomic_load(&producer.errors);
    printf("{\"sent\":%lld,\"got\":%lld,\"errors\":%d", (long long)producer.sent, (long long)got,
           errors);
    print_percentiles(latencies_ns, measured);
    printf("}\n");
    return errors || got < producer.sent;
}
