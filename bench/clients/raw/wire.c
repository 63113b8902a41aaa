#define _GNU_SOURCE
#include "wire.h"

#include <endian.h>
#include <string.h>
#include <time.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

uint8_t *put8(uint8_t *at, int value) {
    *at = (uint8_t)value;
    return at + 1;
}

uint8_t *put16(uint8_t *at, int value) {
    uint16_t big = htobe16((uint16_t)value);
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

uint8_t *put32(uint8_t *at, int32_t value) {
    uint32_t big = htobe32((uint32_t)value);
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

uint8_t *put64(uint8_t *at, int64_t value) {
    uint64_t big = htobe64((uint64_t)value);
    memcpy(at, &big, sizeof big);
    return at + sizeof big;
}

uint8_t *put_string(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at = put16(at, (int)length);
    memcpy(at, text, length);
    return at + length;
}

int16_t get16(const uint8_t *at) {
    uint16_t big;
    memcpy(&big, at, sizeof big);
    return (int16_t)be16toh(big);
}

int32_t get32(const uint8_t *at) {
    uint32_t big;
    memcpy(&big, at, sizeof big);
    return (int32_t)be32toh(big);
}

int64_t get64(const uint8_t *at) {
    uint64_t big;
    memcpy(&big, at, sizeof big);
    return (int64_t)be64toh(big);
}

static uint8_t *put_varint(uint8_t *at, int64_t value) {
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; bits >= 0x80; bits >>= 7) *at++ = (uint8_t)(bits | 0x80);
    *at++ = (uint8_t)bits;
    return at;
}

const uint8_t *get_varint(const uint8_t *at, int64_t *value) {
    uint64_t bits = 0;
    int shift = 0;
    uint8_t byte;
    do {
        byte = *at++;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
    return at;
}

static uint32_t crc32c(const uint8_t *at, size_t length) {
    uint64_t crc = 0xffffffff;
#ifdef __SSE4_2__
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        crc = _mm_crc32_u64(crc, word);
    }
    while (length--) crc = _mm_crc32_u8((uint32_t)crc, *at++);
#else
    while (length--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
#endif
    return ~(uint32_t)crc;
}

uint8_t *start_request(uint8_t *request, int api_key, int api_version, int32_t correlation_id) {
    uint8_t *at = request + 4;  // The size, known at the end.
    at = put16(at, api_key);
    at = put16(at, api_version);
    at = put32(at, correlation_id);
    return put_string(at, "bench");
}

size_t end_request(uint8_t *request, const uint8_t *end) {
    put32(request, (int32_t)(end - request - 4));
    return (size_t)(end - request);
}

// Bytes that look like something and compress to a half or so.
static void put_value(uint8_t *value, int bytes, uint64_t seed) {
    uint64_t random = 0x9e3779b97f4a7c15ull * (seed + 1);
    for (int i = 0; i < bytes; i++) {
        if ((i & 7) == 0) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
        }
        value[i] = i & 8 ? (uint8_t)(random >> ((i & 7) * 8)) : (uint8_t)('a' + i % 26);
    }
}

static uint8_t *put_record(uint8_t *at, int number, int value_bytes, const uint64_t *stamp) {
    uint8_t head[RECORD_OVERHEAD_MAX], *h = head;
    h = put8(h, 0);                     // Attributes.
    h = put_varint(h, 0);               // Timestamp delta.
    h = put_varint(h, number);          // Offset delta.
    h = put_varint(h, -1);              // No key.
    h = put_varint(h, value_bytes);
    at = put_varint(at, (h - head) + value_bytes + 1);
    memcpy(at, head, (size_t)(h - head));
    at += h - head;
    put_value(at, value_bytes, (uint64_t)number);
    if (stamp) memcpy(at, stamp, TIMESTAMP_BYTES);
    return put_varint(at + value_bytes, 0);  // No headers.
}

size_t batch_bytes_max(int count, int value_bytes) {
    return BATCH_HEADER_BYTES + (size_t)count * (size_t)(value_bytes + RECORD_OVERHEAD_MAX);
}

size_t put_batch(uint8_t *batch, int count, int value_bytes, const uint64_t *stamps) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = now.tv_sec * 1000ll + now.tv_nsec / 1000000;
    uint8_t *end = batch + BATCH_HEADER_BYTES;
    for (int i = 0; i < count; i++) end = put_record(end, i, value_bytes, stamps ? stamps + i : 0);
    size_t bytes = (size_t)(end - batch);
    put64(batch, 0);                      // Base offset: the broker's.
    put32(batch + 8, (int32_t)bytes - 12);
    put32(batch + 12, -1);                // Leader epoch: the broker's.
    put8(batch + 16, 2);                  // Magic.
    put16(batch + 21, 0);                 // Attributes: not compressed, the client's time.
    put32(batch + 23, count - 1);
    put64(batch + 27, now_ms);
    put64(batch + 35, now_ms);
    put64(batch + 43, -1);                // No idempotent producer.
    put16(batch + 51, -1);
    put32(batch + 53, -1);
    put32(batch + 57, count);
    put32(batch + 17, (int32_t)crc32c(batch + 21, bytes - 21));
    return bytes;
}

size_t produce_overhead_max(const char *topic) { return 128 + strlen(topic); }

size_t put_produce(uint8_t *request, const char *topic, int partition, int acks,
                   const uint8_t *batch, size_t batch_bytes) {
    uint8_t *at = start_request(request, PRODUCE, PRODUCE_VERSION, partition);
    at = put16(at, -1);  // No transactional id.
    at = put16(at, acks);
    at = put32(at, 30000);
    at = put32(at, 1);
    at = put_string(at, topic);
    at = put32(at, 1);
    at = put32(at, partition);
    at = put32(at, (int32_t)batch_bytes);
    memcpy(at, batch, batch_bytes);
    return end_request(request, at + batch_bytes);
}

int produce_error(const uint8_t *response) {
    const uint8_t *at = response + 4 + 4;     // Correlation id, count of topics.
    at += 2 + get16(at) + 4;                  // Topic, count of partitions.
    return get16(at + 4);
}

uint8_t *put_fetch_start(uint8_t *request, int max_wait_ms, int32_t max_bytes, const char *topic,
                         int partitions) {
    uint8_t *at = start_request(request, FETCH, FETCH_VERSION, 0);
    at = put32(at, -1);  // A consumer.
    at = put32(at, max_wait_ms);
    at = put32(at, 1);
    at = put32(at, max_bytes);
    at = put8(at, 0);    // Read uncommitted.
    at = put32(at, 1);
    at = put_string(at, topic);
    return put32(at, partitions);
}

uint8_t *put_fetch_partition(uint8_t *at, int partition, int64_t offset, int32_t max_bytes) {
    at = put32(at, partition);
    at = put64(at, offset);
    return put32(at, max_bytes);
}

const uint8_t *fetched_start(const uint8_t *response, int *partitions) {
    const uint8_t *at = response + 4 + 4;  // Correlation id, throttle time.
    *partitions = 0;
    if (get32(at) == 0) return at;
    at += 4;
    at += 2 + get16(at);
    *partitions = get32(at);
    return at + 4;
}

const uint8_t *fetched_next(const uint8_t *at, FetchedPartition *fetched) {
    fetched->partition = get32(at);
    fetched->error = get16(at + 4);
    at += 4 + 2 + 8 + 8;                   // Then high watermark and last stable offset.
    int32_t aborted = get32(at);
    at += 4 + (aborted > 0 ? 16 * aborted : 0);
    fetched->records_bytes = get32(at);
    fetched->records = at + 4;
    return at + 4 + (fetched->records_bytes > 0 ? fetched->records_bytes : 0);
}

bool next_batch(Batches *batches, const uint8_t **batch) {
    if (batches->end - batches->at < BATCH_HEADER_BYTES) return false;
    int64_t bytes = 12 + (int64_t)get32(batches->at + 8);
    if (batches->end - batches->at < bytes) return false;
    *batch = batches->at;
    batches->at += bytes;
    return true;
}

int64_t batch_next_offset(const uint8_t *batch) { return get64(batch) + get32(batch + 23) + 1; }

int32_t batch_count(const uint8_t *batch) { return get32(batch + 57); }
