#ifndef CAPI_AWAIT_H
#define CAPI_AWAIT_H

#include "capi.h"

// Drains the notifications like capi_drain, over and over with a rest of interval_ns
// before each time, until there are some, fd is readable, or limit_ns has passed.
int capi_await(const capi_table *, capi_agent, int fd, int64_t interval_ns, int64_t limit_ns,
               void **data, size_t *len);

#endif
