/* host.h: what the examples need of a host: two workers that open, describe and close an
 * engine, hand over one prompt per step, and end the program when something fails.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HOST_H
#define HOST_H

#include <stdint.h>

#include "nixlpush.h"

typedef struct worker {
  const char *role; /* also its engine id */
  nixlpush_handle channel;
  nixlpush_handle engine;
  uint32_t port; /* of its side channel */
  unsigned char *cache;
} worker;

/* Prints why, and what the library has logged, and ends the program. */
void fail(const worker *w, const char *what, const char *why);

/* Fails if code, what the library has returned, is an error. */
void check(const worker *w, const char *what, int32_t code, const nixlpush_error *err);

/* An error to be passed to the library. */
nixlpush_error no_error(void);

/* Opens side channel and engine. library is the path of libnixl_capi.so; NULL: the loader's. */
void open_worker(worker *w, const char *library);

/* Describes one piece of memory, in which the layout's regions are, and publishes how to
 * reach it. */
void register_cache(worker *w, nixlpush_layout *layout, uint64_t len);

/* What the scheduler of a consumer does for a prompt that another engine computes. */
void expect(const worker *w, int prompt, uint32_t producer_port, const uint32_t *blocks, uint32_t count);

/* And what the scheduler of a producer does when a prompt of so many tokens is computed. */
void offer(const worker *w, int prompt, uint64_t tokens, const uint32_t *blocks, uint32_t count);

/* Waits for one event, as a host without a loop of its own does. Its tag is prompt + 1. */
nixlpush_event next_event(const worker *w);

void close_worker(worker *w);

#endif
