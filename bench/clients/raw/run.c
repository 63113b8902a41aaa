#define _GNU_SOURCE
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

void fail(const char *what) {
    fprintf(stderr, "bench: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) fail("no memory");
    return memory;
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

int connect_broker(const Options *options) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

void send_all(int fd, const uint8_t *data, size_t bytes) {
    while (bytes) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) fail("send");
        data += sent;
        bytes -= (size_t)sent;
    }
}

static void receive_all(int fd, uint8_t *data, size_t bytes) {
    while (bytes) {
        ssize_t received = recv(fd, data, bytes, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) fail("the broker closed a connection");
        data += received;
        bytes -= (size_t)received;
    }
}

size_t receive_response(int fd, uint8_t **buffer, size_t *capacity) {
    uint8_t size[4];
    receive_all(fd, size, sizeof size);
    size_t bytes = (size_t)(uint32_t)get32(size);
    if (bytes > *capacity) {
        free(*buffer);
        *capacity = bytes * 2;
        *buffer = allocate(*capacity);
    }
    receive_all(fd, *buffer, bytes);
    return bytes;
}

int records_per_batch(const Options *options) {
    int records = options->batch_bytes / (options->record_bytes + 8);
    return records > 0 ? records : 1;
}

uint32_t clamp_ns(uint64_t ns) { return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns; }

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

void print_percentiles(uint32_t *latencies_ns, size_t count) {
    static const struct {
        const char *name;
        double share;
    } percentiles[] = {{"p50_us", .5}, {"p99_us", .99}, {"p999_us", .999}, {"max_us", 1}};
    printf(",\"n\":%zu", count);
    if (!count) return;
    qsort(latencies_ns, count, sizeof *latencies_ns, by_size);
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++) {
        size_t rank = (size_t)(percentiles[i].share * (double)count);
        if (rank >= count) rank = count - 1;
        printf(",\"%s\":%.1f", percentiles[i].name, latencies_ns[rank] / 1e3);
    }
}
