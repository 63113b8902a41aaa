// librdkafka as people use it: `driver produce|flood|consume|end-to-end bootstrap=… topic=… name=value…`.
// Options with a dot in their name go to librdkafka as they are; the others are ours (see main).
// bootstrap=mock uses the mock broker inside librdkafka: the client's own ceiling.
// The result is one line of JSON.
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    const char *bootstrap, *topic;
    int64_t records;
    int record_bytes;
    double rate, seconds;
    int argc;
    char **argv;
} Options;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "driver: %s\n", what);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail(error);
}

enum { SECONDS_MAX = 600, VALUES = 256 };

static int64_t failed, delivered;
static uint64_t flood_ns;  // When the flood began; 0: there is none.
static double by_second[SECONDS_MAX];

static void on_delivery(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque) {
    (void)kafka, (void)opaque;
    delivered++;
    if (message->err) failed++;
    if (!flood_ns) return;
    uint64_t second = (now_ns() - flood_ns) / 1000000000;
    if (second < SECONDS_MAX) by_second[second] += (double)message->len;
}

// A client with the options of the command line.
static rd_kafka_t *client(const Options *options, rd_kafka_type_t type) {
    char error[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (strcmp(options->bootstrap, "mock"))
        set(conf, "bootstrap.servers", options->bootstrap);
    else
        set(conf, "test.mock.num.brokers", "1");
    if (type == RD_KAFKA_CONSUMER) {
        set(conf, "group.id", "bench");
        set(conf, "enable.auto.commit", "false");
        set(conf, "queued.max.messages.kbytes", "65536");
    } else {
        set(conf, "queue.buffering.max.messages", "1000000");
        set(conf, "queue.buffering.max.kbytes", "262144");
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    for (int i = 0; i < options->argc; i++) {
        char *equals = strchr(options->argv[i], '=');
        char *dot = strchr(options->argv[i], '.');
        if (!equals || !dot || dot > equals) continue;
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)(equals - options->argv[i]), options->argv[i]);
        int is_consumers = !strncmp(name, "fetch.", 6);
        int is_both = !strncmp(name, "security.", 9) || !strncmp(name, "ssl.", 4);
        if (is_both || is_consumers == (type == RD_KAFKA_CONSUMER)) set(conf, name, equals + 1);
    }
    rd_kafka_t *kafka = rd_kafka_new(type, conf, error, sizeof error);
    if (!kafka) fail(error);
    return kafka;
}

static void send_one(rd_kafka_t *kafka, rd_kafka_topic_t *topic, char *value, int bytes) {
    while (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value, (size_t)bytes, NULL, 0, NULL))
        rd_kafka_poll(kafka, 1);  // The queue is full.
    rd_kafka_poll(kafka, 0);
}

static int produce(const Options *options) {
    rd_kafka_t *kafka = client(options, RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(kafka, options->topic, NULL);
    char *value = malloc((size_t)options->record_bytes);
    memset(value, 'x', (size_t)options->record_bytes);
    send_one(kafka, topic, value, options->record_bytes);  // Connects.
    rd_kafka_flush(kafka, 10000);
    uint64_t started_ns = now_ns();
    for (int64_t i = 0; i < options->records; i++)
        send_one(kafka, topic, value, options->record_bytes);
    rd_kafka_flush(kafka, 120000);
    double seconds = (double)(now_ns() - started_ns) / 1e9;
    double bytes = (double)options->records * options->record_bytes;
    printf("{\"seconds\":%.4f,\"bytes\":%.0f,\"mb_s\":%.2f,\"msg_s\":%.0f,\"errors\":%" PRId64 "}\n",
           seconds, bytes, bytes / seconds / 1e6, (double)options->records / seconds, failed);
    return failed != 0 || delivered != options->records + 1;
}

static int compare_doubles(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

// As produce, with values that are half random, and its slowest second.
static int flood(const Options *options) {
    rd_kafka_t *kafka = client(options, RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(kafka, options->topic, NULL);
    int bytes = options->record_bytes;
    char *values = malloc((size_t)VALUES * (size_t)bytes);
    for (int i = 0; i < VALUES * bytes; i++) values[i] = (char)(i % bytes < bytes / 2 ? rand() : 'x');
    flood_ns = now_ns();
    for (int64_t i = 0; i < options->records; i++)
        send_one(kafka, topic, values + rand() % VALUES * bytes, bytes);
    rd_kafka_flush(kafka, 120000);
    double seconds = (double)(now_ns() - flood_ns) / 1e9, total = (double)bytes * (double)delivered;
    printf("{\"seconds\":%.4f,\"bytes\":%.0f,\"mb_s\":%.2f,\"errors\":%" PRId64, seconds, total,
           total / seconds / 1e6, failed);
    int whole = (int)seconds < SECONDS_MAX ? (int)seconds : SECONDS_MAX;
    qsort(by_second, (size_t)whole, sizeof *by_second, compare_doubles);
    printf(",\"slowest_second\":%.2f,\"median_second\":%.2f}\n", whole ? by_second[0] / 1e6 : 0.0,
           whole ? by_second[whole / 2] / 1e6 : 0.0);
    return failed != 0 || delivered != options->records;
}

static rd_kafka_t *reader(const Options *options, int64_t offset) {
    rd_kafka_t *kafka = client(options, RD_KAFKA_CONSUMER);
    rd_kafka_poll_set_consumer(kafka);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, options->topic, 0)->offset = offset;
    if (rd_kafka_assign(kafka, list)) fail("assign");
    rd_kafka_topic_partition_list_destroy(list);
    return kafka;
}

enum { TAKEN_AT_ONCE = 10000 };

static int consume(const Options *options) {
    rd_kafka_t *kafka = reader(options, RD_KAFKA_OFFSET_BEGINNING);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(kafka);
    rd_kafka_message_t **messages = malloc(TAKEN_AT_ONCE * sizeof *messages);
    int64_t records = 0, bytes = 0, errors = 0;
    uint64_t started_ns = 0;
    while (records < options->records && errors < 10) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 1000, messages, TAKEN_AT_ONCE);
        if (count > 0 && !started_ns) started_ns = now_ns();
        for (ssize_t i = 0; i < count; i++) {
            if (messages[i]->err)
                errors++;
            else
                records++, bytes += (int64_t)messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    double seconds = (double)(now_ns() - started_ns) / 1e9;
    printf("{\"seconds\":%.4f,\"bytes\":%" PRId64 ",\"mb_s\":%.2f,\"msg_s\":%.0f,\"errors\":%" PRId64 "}\n",
           seconds, bytes, (double)bytes / seconds / 1e6, (double)records / seconds, errors);
    return errors != 0;
}

typedef struct {
    const Options *options;
    uint64_t start_ns;
    int64_t sent;
} Pace;

static void *produce_at_rate(void *argument) {
    Pace *pace = argument;
    const Options *options = pace->options;
    rd_kafka_t *kafka = client(options, RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(kafka, options->topic, NULL);
    char *value = calloc(1, (size_t)options->record_bytes);
    uint64_t interval_ns = (uint64_t)(1e9 / options->rate), due_ns = pace->start_ns;
    uint64_t end_ns = due_ns + (uint64_t)(options->seconds * 1e9);
    for (; due_ns < end_ns; due_ns += interval_ns) {
        if (now_ns() < due_ns) {  // Sleep: a client that spins takes a core from the broker.
            struct timespec due = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
            rd_kafka_poll(kafka, 0);
        }
        memcpy(value, &due_ns, sizeof due_ns);
        send_one(kafka, topic, value, options->record_bytes);
        pace->sent++;
    }
    rd_kafka_flush(kafka, 10000);
    return NULL;
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static int end_to_end(const Options *options) {
    rd_kafka_t *kafka = reader(options, RD_KAFKA_OFFSET_END);
    rd_kafka_message_t *none = rd_kafka_consumer_poll(kafka, 2000);  // The first long poll runs.
    if (none) rd_kafka_message_destroy(none);
    Pace pace = {options, now_ns() + 200000000, 0};
    int64_t wanted = (int64_t)(options->rate * options->seconds) - 1, got = 0;
    uint64_t *latencies = malloc((size_t)(wanted + 2) * sizeof *latencies), last_ns = now_ns();
    size_t measured = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, produce_at_rate, &pace)) fail("pthread_create");
    while (got < wanted && now_ns() - last_ns < 5000000000ull) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(kafka, 100);
        if (!message) continue;
        if (!message->err) {
            uint64_t due_ns;
            memcpy(&due_ns, message->payload, sizeof due_ns);
            last_ns = now_ns();
            if (due_ns >= pace.start_ns) got++;
            if (due_ns >= pace.start_ns + 1000000000ull) latencies[measured++] = last_ns - due_ns;
        }
        rd_kafka_message_destroy(message);
    }
    pthread_join(thread, NULL);
    if (!measured) fail("nothing came");
    qsort(latencies, measured, sizeof *latencies, compare);
    printf("{\"sent\":%" PRId64 ",\"got\":%" PRId64 ",\"p50_us\":%.1f,\"p99_us\":%.1f}\n", pace.sent, got,
           (double)latencies[measured / 2] / 1e3, (double)latencies[measured * 99 / 100] / 1e3);
    return got < wanted;
}

int main(int argc, char **argv) {
    Options options = {"127.0.0.1:9092", "bench", 1000000, 1024, 10000, 5, argc - 2, argv + 2};
    for (int i = 2; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        if (!value) fail("options are name=value");
        value++;
        if (!strncmp(argv[i], "bootstrap=", 10)) options.bootstrap = value;
        if (!strncmp(argv[i], "topic=", 6)) options.topic = value;
        if (!strncmp(argv[i], "records=", 8)) options.records = atoll(value);
        if (!strncmp(argv[i], "record-bytes=", 13)) options.record_bytes = atoi(value);
        if (!strncmp(argv[i], "rate=", 5)) options.rate = atof(value);
        if (!strncmp(argv[i], "seconds=", 8)) options.seconds = atof(value);
    }
    if (argc > 1 && !strcmp(argv[1], "produce")) return produce(&options);
    if (argc > 1 && !strcmp(argv[1], "flood")) return flood(&options);
    if (argc > 1 && !strcmp(argv[1], "consume")) return consume(&options);
    if (argc > 1 && !strcmp(argv[1], "end-to-end")) return end_to_end(&options);
    fail("usage: driver produce|consume|end-to-end name=value…");
}
