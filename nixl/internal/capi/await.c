#define _GNU_SOURCE
#include "await.h"

#include <poll.h>
#include <time.h>

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// rest returns whether fd became readable within ns. A signal ends it early, which is
// harmless: the caller looks around and rests again.
static int rest(int fd, int64_t ns) {
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    return ppoll(&p, 1, &t, NULL) > 0;
}

int capi_await(const capi_table *t, capi_agent agent, int fd, int64_t interval_ns,
               int64_t limit_ns, void **data, size_t *len) {
    int64_t end = now_ns() + limit_ns;
    for (;;) {
        int64_t left = end - now_ns();
        int woken = rest(fd, left < interval_ns ? (left > 0 ? left : 0) : interval_ns);
        int status = capi_drain(t, agent, data, len);
        if (status != CAPI_OK || *data != NULL || woken || now_ns() >= end)
            return status;
    }
}
