// A Kafka client that costs almost nothing: `raw produce|fetch|end-to-end|idle --option=value…`;
// `gaps` asks no broker.
// The broker is on 127.0.0.1 and leads all partitions. The result is one line of JSON.
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

static const struct option NAMES[] = {
    {"port", required_argument, 0, 'p'},        {"topic", required_argument, 0, 't'},
    {"partitions", required_argument, 0, 'n'},  {"connections", required_argument, 0, 'c'},
    {"depth", required_argument, 0, 'd'},       {"record-bytes", required_argument, 0, 'r'},
    {"batch-bytes", required_argument, 0, 'b'}, {"acks", required_argument, 0, 'a'},
    {"bytes", required_argument, 0, 'B'},       {"requests", required_argument, 0, 'R'},
    {"fetch-bytes", required_argument, 0, 'f'}, {"rate", required_argument, 0, 'q'},
    {"seconds", required_argument, 0, 's'},     {0},
};

static Options parse(int argc, char **argv) {
    Options options = {.port = 9092, .topic = "bench", .partitions = 1, .connections = 1,
                       .depth = 5, .record_bytes = 1024, .batch_bytes = 1000000, .acks = -1,
                       .bytes = 1000000000, .fetch_bytes = 1 << 20, .rate = 10000, .seconds = 5};
    for (int option; (option = getopt_long(argc, argv, "", NAMES, 0)) != -1;) {
        double number = strtod(optarg ? optarg : "", 0);
        switch (option) {
            case 'p': options.port = (int)number; break;
            case 't': options.topic = optarg; break;
            case 'n': options.partitions = (int)number; break;
            case 'c': options.connections = (int)number; break;
            case 'd': options.depth = (int)number; break;
            case 'r': options.record_bytes = (int)number; break;
            case 'b': options.batch_bytes = (int)number; break;
            case 'a': options.acks = (int)number; break;
            case 'B': options.bytes = (int64_t)number; break;
            case 'R': options.requests = (int64_t)number; break;
            case 'f': options.fetch_bytes = (int)number; break;
            case 'q': options.rate = number; break;
            case 's': options.seconds = number; break;
            default: exit(2);
        }
    }
    return options;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*measure)(const Options *);
    } measures[] = {{"produce", measure_produce},
                    {"fetch", measure_fetch},
                    {"end-to-end", measure_end_to_end},
                    {"gaps", measure_gaps},
                    {"idle", hold_idle}};
    for (size_t i = 0; argc > 1 && i < sizeof measures / sizeof *measures; i++) {
        if (strcmp(argv[1], measures[i].name)) continue;
        Options options = parse(argc - 1, argv + 1);
        return measures[i].measure(&options);
    }
    fprintf(stderr, "usage: raw produce|fetch|end-to-end|gaps|idle --port=… --topic=… (see main.c)\n");
    return 2;
}
