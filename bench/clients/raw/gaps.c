// What the machine takes: a thread for each core that only looks at the clock, and the times when
// it was not run. No latency that is measured here can be free of them.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "run.h"

enum { THREADS_MAX = 64 };
static const uint64_t GAP_NS_MIN = 1000000;

typedef struct {
    uint64_t end_ns, lost_ns, longest_ns;
} Look;

static void *look(void *argument) {
    Look *own = argument;
    for (uint64_t last = now_ns(), now; last < own->end_ns; last = now) {
        now = now_ns();
        if (now - last < GAP_NS_MIN) continue;
        own->lost_ns += now - last;
        if (now - last > own->longest_ns) own->longest_ns = now - last;
    }
    return NULL;
}

int measure_gaps(const Options *options) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = cores < THREADS_MAX ? (int)cores : THREADS_MAX;
    pthread_t thread[THREADS_MAX];
    Look looks[THREADS_MAX] = {0};
    uint64_t end_ns = now_ns() + (uint64_t)(options->seconds * 1e9), lost_ns = 0, longest_ns = 0;
    for (int i = 0; i < threads; i++) {
        looks[i].end_ns = end_ns;
        if (pthread_create(&thread[i], NULL, look, &looks[i])) fail("pthread_create");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        lost_ns += looks[i].lost_ns;
        if (looks[i].longest_ns > longest_ns) longest_ns = looks[i].longest_ns;
    }
    printf("{\"gaps_percent\":%.3f,\"gap_us_max\":%.0f}\n",
           100 * (double)lost_ns / 1e9 / options->seconds, (double)longest_ns / 1e3);
    return 0;
}
