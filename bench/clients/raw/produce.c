// Produce: every connection sends its requests, encoded beforehand, `depth` ahead of the answers.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "run.h"
#include "wire.h"

typedef struct {
    const Options *options;
    int first_partition, partitions;
    int64_t requests;
    uint32_t *latencies_ns;
    uint64_t started_ns, ended_ns;
    int64_t errors;
    int last_error;
} Connection;

// One request for all partitions: its partition is put in place before it is sent.
typedef struct {
    uint8_t *bytes;
    size_t length;
    uint8_t *partition;
} Template;

static Template make_template(const Options *options) {
    int records = records_per_batch(options);
    uint8_t *batch = allocate(batch_bytes_max(records, options->record_bytes));
    size_t batch_bytes = put_batch(batch, records, options->record_bytes, NULL);
    Template template = {.bytes = allocate(batch_bytes + produce_overhead_max(options->topic))};
    template.length =
        put_produce(template.bytes, options->topic, 0, options->acks, batch, batch_bytes);
    template.partition = template.bytes + template.length - batch_bytes - 8;
    free(batch);
    return template;
}

static void *run(void *argument) {
    Connection *own = argument;
    const Options *options = own->options;
    Template request = make_template(options);
    uint64_t *sent_ns = allocate((size_t)options->depth * sizeof *sent_ns);
    size_t capacity = 1 << 16;
    uint8_t *response = allocate(capacity);
    int fd = connect_broker(options);
    int64_t sent = 0, answered = 0;
    own->started_ns = now_ns();
    while (answered < own->requests) {
        while (sent < own->requests && sent - answered < options->depth) {
            put32(request.partition, own->first_partition + (int)(sent % own->partitions));
            sent_ns[sent % options->depth] = now_ns();
            send_all(fd, request.bytes, request.length);
            sent++;
        }
        receive_response(fd, &response, &capacity);
        own->latencies_ns[answered] = clamp_ns(now_ns() - sent_ns[answered % options->depth]);
        answered++;
        int error = produce_error(response);
        if (error) {
            own->errors++;
            own->last_error = error;
        }
    }
    own->ended_ns = now_ns();
    close(fd);
    return NULL;
}

// Connections share the partitions; if there are more connections, each has all of them.
static void share(const Options *options, Connection *connections, int64_t requests) {
    int each = options->partitions / options->connections;
    for (int i = 0; i < options->connections; i++) {
        Connection *own = &connections[i];
        own->options = options;
        own->first_partition = each ? i * each : 0;
        own->partitions = each ? each : options->partitions;
        own->requests = requests / options->connections;
        if (own->requests < 1) own->requests = 1;
        own->latencies_ns = allocate((size_t)own->requests * sizeof(uint32_t));
    }
}

int measure_produce(const Options *options) {
    int64_t request_bytes = (int64_t)records_per_batch(options) * options->record_bytes;
    int64_t requests = options->requests ? options->requests : options->bytes / request_bytes;
    Connection *connections = calloc((size_t)options->connections, sizeof *connections);
    pthread_t *threads = allocate((size_t)options->connections * sizeof *threads);
    share(options, connections, requests);
    for (int i = 0; i < options->connections; i++)
        if (pthread_create(&threads[i], NULL, run, &connections[i])) fail("pthread_create");
    for (int i = 0; i < options->connections; i++) pthread_join(threads[i], NULL);

    Connection all = {.started_ns = UINT64_MAX};
    uint32_t *latencies_ns = NULL;
    for (int i = 0; i < options->connections; i++) {
        const Connection *one = &connections[i];
        size_t total = (size_t)(all.requests + one->requests) * sizeof *latencies_ns;
        if (!(latencies_ns = realloc(latencies_ns, total))) fail("no memory");
        for (int64_t k = 0; k < one->requests; k++)
            latencies_ns[all.requests + k] = one->latencies_ns[k];
        all.requests += one->requests;
        all.errors += one->errors;
        if (one->last_error) all.last_error = one->last_error;
        if (one->started_ns < all.started_ns) all.started_ns = one->started_ns;
        if (one->ended_ns > all.ended_ns) all.ended_ns = one->ended_ns;
    }
    double seconds = (double)(all.ended_ns - all.started_ns) / 1e9;
    double bytes = (double)all.requests * (double)request_bytes;
    double records = (double)all.requests * records_per_batch(options);
    printf("{\"seconds\":%.4f,\"bytes\":%.0f,\"records\":%.0f,\"requests\":%lld", seconds, bytes,
           records, (long long)all.requests);
    printf(",\"mb_s\":%.2f,\"msg_s\":%.0f,\"req_s\":%.0f", bytes / seconds / 1e6,
           records / seconds, (double)all.requests / seconds);
    printf(",\"errors\":%lld,\"last_error\":%d", (long long)all.errors, all.last_error);
    print_percentiles(latencies_ns, (size_t)all.requests);
    printf("}\n");
    return all.errors != 0;
}
