// What the measurements share: options, connections, clocks, and percentiles.
#ifndef SMQ_BENCH_RUN_H
#define SMQ_BENCH_RUN_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int port;
    const char *topic;
    int partitions;
    int connections;
    int depth;         // Requests on their way at once, for each connection.
    int record_bytes;  // Of a record's value.
    int batch_bytes;   // About; at least one record.
    int acks;
    int64_t bytes;     // Of record values to move in all.
    int64_t requests;  // Instead of bytes.
    int fetch_bytes;   // That one partition may return.
    double rate;       // Records a second.
    double seconds;
} Options;

int measure_produce(const Options *options);
int measure_fetch(const Options *options);
int measure_end_to_end(const Options *options);
int measure_gaps(const Options *options);
int hold_idle(const Options *options);

void fail(const char *what) __attribute__((noreturn));
void *allocate(size_t bytes);
uint64_t now_ns(void);

int connect_broker(const Options *options);
void send_all(int fd, const uint8_t *data, size_t bytes);
// The next response without its size, in a buffer that grows; returns its length.
size_t receive_response(int fd, uint8_t **buffer, size_t *capacity);

int records_per_batch(const Options *options);

// Prints `,"n":…,"p50_us":…,"p99_us":…,"p999_us":…,"max_us":…` of latencies, which it sorts.
void print_percentiles(uint32_t *latencies_ns, size_t count);
uint32_t clamp_ns(uint64_t ns);

#endif
