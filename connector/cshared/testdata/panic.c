/* panic.c: what a host sees when nixlpush panics: the process lives, requests fail, new ones
 * are refused, and all can be closed. It needs the test build of the library.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   panic PLACE LIBNIXL      PLACE as in bomb.h
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bomb.h"
#include "nixlpush.h"

enum { IN_EXPORT = 1, IN_LOOP, IN_WRITER, IN_HANDSHAKE, BLOCKS = 8, BLOCK_LEN = 4096 };

typedef struct side {
  nixlpush_handle channel, engine;
  uint32_t port;
  unsigned char cache[BLOCKS * BLOCK_LEN];
} side;

static nixlpush_error err = {.struct_size = sizeof err};

#define MUST(condition)                                                            \
  do {                                                                             \
    if (!(condition)) {                                                            \
      printf("panic.c:%d: not so: %s (last error: %s)\n", __LINE__, #condition, err.message); \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

static void start(side *s, const char *name, const char *library) {
  nixlpush_options options = {.struct_size = sizeof options, .engine_id = name, .side_channel_host = "127.0.0.1",
                              .nixl_library = library, .receive_timeout_ms = 3000};
  nixlpush_region region = {.struct_size = sizeof region, .base = (uint64_t)(uintptr_t)s->cache,
                            .block_len = BLOCK_LEN, .stride = BLOCK_LEN, .num_blocks = BLOCKS,
                            .name = "layer.0"};
  nixlpush_memory memory = {.addr = region.base, .len = sizeof s->cache};
  nixlpush_layout layout = {.struct_size = sizeof layout, .block_size = 16, .num_blocks = BLOCKS, .name = "LBHNC",
                            .attention_backend = "none", .regions = &region, .num_regions = 1,
                            .memory = &memory, .num_memory = 1};
  unsigned char metadata[1 << 16];
  uint64_t len;
  MUST(nixlpush_sidechannel_open("127.0.0.1", 0, &s->channel, &err) == 0);
  s->port = options.side_channel_port = (uint32_t)nixlpush_sidechannel_port(s->channel, &err);
  MUST(nixlpush_engine_open(&options, &s->engine, &err) == 0);
  MUST(nixlpush_engine_register(s->engine, &layout, &err) == 0);
  MUST(nixlpush_engine_metadata(s->engine, metadata, sizeof metadata, &len, &err) == 0);
  MUST(nixlpush_sidechannel_publish(s->channel, 0, 0, metadata, len, &err) == 0);
}

static const uint32_t ids[] = {1, 2, 3}, count = 3;
static const nixlpush_blocks blocks = {.ids = ids, .counts = &count, .num_groups = 1};

static int32_t expect(const side *d, const side *p, uint64_t tag) {
  const nixlpush_expect x = {.struct_size = sizeof x, .producer_port = p->port, .tag = tag, .request_id = "d",
                             .transfer_id = "t", .producer_engine_id = "p", .producer_host = "127.0.0.1",
                             .blocks = blocks};
  const nixlpush_step step = {.struct_size = sizeof step, .expects = &x, .num_expects = 1};
  return nixlpush_submit(d->engine, &step, &err);
}

static int32_t offer(const side *p, uint64_t tag) {
  const nixlpush_offer o = {.struct_size = sizeof o, .tag = tag, .request_id = "p", .transfer_id = "t", .blocks = blocks};
  const nixlpush_step step = {.struct_size = sizeof step, .offers = &o, .num_offers = 1};
  return nixlpush_submit(p->engine, &step, &err);
}

static nixlpush_event next(const side *s) {
  nixlpush_event event;
  struct pollfd ready = {.fd = nixlpush_event_fd(s->engine, &err), .events = POLLIN};
  MUST(poll(&ready, 1, 20000) == 1);
  MUST(nixlpush_poll(s->engine, &event, 1, sizeof event, &err) == 1);
  return event;
}

/* The panic and a stack of it are in the log, once. */
static void check_log(const char *frame) {
  static char log[1 << 20];
  int32_t n, used = 0;
  char *at;
  int panics = 0;
  while ((n = nixlpush_drain_log(log + used, sizeof log - 1 - (size_t)used)) > 0) used += n;
  log[used] = 0;
  for (at = log; (at = strstr(at, "panic in nixlpush")) != NULL; at++) panics++;
  if (panics != 1 || strstr(log, frame) == NULL) {
    printf("panic.c: %d panics are logged, or none shows %s:\n%s", panics, frame, log);
    exit(1);
  }
}

static void stop(side *s) {
  MUST(nixlpush_engine_close(s->engine, &err) == 0);
  MUST(nixlpush_sidechannel_close(s->channel, &err) == 0);
}

/* A panic in an export: the process takes no more work, what it holds ends as it would have. */
static void in_export(const side *d, const side *p) {
  nixlpush_handle another;
  MUST(expect(d, p, 1) == 0);
  MUST(nixlpush_test_panic(IN_EXPORT) == NIXLPUSH_EINTERNAL);
  MUST(expect(d, p, 2) == NIXLPUSH_EINTERNAL && strstr(err.message, "restart") != NULL);
  MUST(nixlpush_sidechannel_open("127.0.0.1", 0, &another, &err) == NIXLPUSH_EINTERNAL);
  MUST(next(d).reason == NIXLPUSH_REASON_DEADLINE);
  check_log("nixlpush_test_panic");
}

/* A panic in a goroutine of an engine: that engine fails what it holds and takes no more. */
static void in_loop(const side *p) {
  nixlpush_event event;
  MUST(offer(p, 1) == 0);
  MUST(nixlpush_test_panic(IN_LOOP) == 0);
  event = next(p);
  MUST(event.tag == 1 && event.kind == NIXLPUSH_SEND_FAILED && event.reason == NIXLPUSH_REASON_INTERNAL);
  MUST(offer(p, 2) == NIXLPUSH_EINTERNAL);
  check_log("explode");
}

static void in_writer(const side *d, const side *p) {
  nixlpush_event event;
  MUST(nixlpush_test_panic(IN_WRITER) == 0);
  MUST(offer(p, 1) == 0 && expect(d, p, 1) == 0);
  event = next(p);
  MUST(event.tag == 1 && event.kind == NIXLPUSH_SEND_FAILED && event.reason == NIXLPUSH_REASON_INTERNAL);
  MUST(offer(p, 2) == NIXLPUSH_EINTERNAL);
  MUST(next(d).kind == NIXLPUSH_RECEIVE_FAILED);
  check_log("explode");
}

static void in_handshake(const side *d, const side *p) {
  nixlpush_event event;
  MUST(nixlpush_test_panic(IN_HANDSHAKE) == 0);
  MUST(expect(d, p, 1) == 0);
  event = next(d);
  MUST(event.tag == 1 && event.kind == NIXLPUSH_RECEIVE_FAILED && event.reason == NIXLPUSH_REASON_INTERNAL);
  MUST(expect(d, p, 2) == NIXLPUSH_EINTERNAL);
  check_log("explode");
}

int main(int argc, char **argv) {
  static side p, d;
  const int place = argc == 3 ? atoi(argv[1]) : 0;
  if (place < IN_EXPORT || place > IN_HANDSHAKE) return 2;
  start(&p, "p", argv[2]);
  if (place != IN_LOOP) start(&d, "d", argv[2]); /* the loop of either engine could take the panic */
  switch (place) {
    case IN_EXPORT: in_export(&d, &p); break;
    case IN_LOOP: in_loop(&p); break;
    case IN_WRITER: in_writer(&d, &p); break;
    case IN_HANDSHAKE: in_handshake(&d, &p); break;
  }
  if (place != IN_LOOP) stop(&d);
  stop(&p);
  MUST(nixlpush_open_handles() == 0);
  return 0;
}
