// Idle connections: each has asked once, then says nothing until our standard input ends.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "run.h"
#include "wire.h"

int hold_idle(const Options *options) {
    uint8_t request[64];
    size_t length =
        end_request(request, start_request(request, API_VERSIONS, API_VERSIONS_VERSION, 1));
    size_t capacity = 1 << 16;
    uint8_t *response = allocate(capacity);
    uint64_t started_ns = now_ns();
    for (int i = 0; i < options->connections; i++) {
        int fd = connect_broker(options);
        send_all(fd, request, length);
        receive_response(fd, &response, &capacity);
    }
    printf("{\"connections\":%d,\"seconds\":%.3f}\n", options->connections,
           (double)(now_ns() - started_ns) / 1e9);
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
}
