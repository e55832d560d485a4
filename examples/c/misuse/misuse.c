/* misuse.c: uses every function of nixlpush.h wrongly, and expects an error code with a text
 * that names what is wrong, never a crash, and a library that still works afterwards.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   misuse [LIBNIXL]         LIBNIXL is the path of libnixl_capi.so
 *
 * Exit status 0: everything was as expected.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "misuse.h"

nixlpush_error err;
const char *library;

static int checks, failures;
static unsigned char cache[BLOCKS * BLOCK_LEN];

void clear_error(void) {
  memset(&err, 0, sizeof err);
  err.struct_size = sizeof err;
}

void judge(const char *file, int line, const char *call, int32_t got, int32_t wanted, const char *text) {
  checks++;
  if (got == wanted && err.code == wanted && strstr(err.message, text) != NULL) return;
  failures++;
  printf("%s:%d: %s\n  returned %d, code %d \"%s\"\n  wanted   %d \"...%s...\"\n", file, line, call, got,
         err.code, err.message, wanted, text);
}

void pause_ms(int ms) {
  const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
  nanosleep(&t, NULL);
}

nixlpush_options good_options(void) {
  return (nixlpush_options){.struct_size = sizeof(nixlpush_options), .engine_id = "misuse",
                            .side_channel_host = "127.0.0.1", .side_channel_port = 5600,
                            .nixl_library = library};
}

nixlpush_region good_region(void) {
  return (nixlpush_region){.struct_size = sizeof(nixlpush_region), .base = (uint64_t)(uintptr_t)cache,
                           .block_len = BLOCK_LEN, .stride = BLOCK_LEN, .num_blocks = BLOCKS,
                           .name = "layer.0"};
}

nixlpush_part good_part(void) {
  return (nixlpush_part){.component = "k", .size = 128, .num_heads = 2, .heads_of = 2,
                         .head_stride = BLOCK_LEN / 2, .token_stride = 128};
}

nixlpush_layout good_layout(const nixlpush_region *region) {
  static nixlpush_memory memory;
  memory = (nixlpush_memory){.addr = (uint64_t)(uintptr_t)cache, .len = sizeof cache};
  return (nixlpush_layout){.struct_size = sizeof(nixlpush_layout), .block_size = 16,
                           .num_blocks = BLOCKS, .name = "LBHNC", .attention_backend = "none",
                           .regions = region, .num_regions = 1, .memory = &memory, .num_memory = 1};
}

static const uint32_t IDS[] = {1, 2, 3}, COUNTS[] = {3};
static const nixlpush_blocks GOOD_BLOCKS = {.ids = IDS, .counts = COUNTS, .num_groups = 1};

nixlpush_expect good_expect(uint64_t tag) {
  return (nixlpush_expect){.struct_size = sizeof(nixlpush_expect), .producer_port = 9, .tag = tag,
                           .request_id = "d-1", .transfer_id = "t-1", .producer_engine_id = "p",
                           .producer_host = "127.0.0.1", .blocks = GOOD_BLOCKS};
}

nixlpush_offer good_offer(uint64_t tag) {
  return (nixlpush_offer){.struct_size = sizeof(nixlpush_offer), .tag = tag, .request_id = "p-1",
                          .transfer_id = "t-1", .blocks = GOOD_BLOCKS};
}

int32_t submit(nixlpush_handle engine, const nixlpush_expect *expects, uint64_t num_expects,
               const nixlpush_offer *offers, uint64_t num_offers) {
  const nixlpush_step step = {.struct_size = sizeof step, .expects = expects, .num_expects = num_expects,
                              .offers = offers, .num_offers = num_offers};
  return nixlpush_submit(engine, &step, &err);
}

/* Every function of an engine, with a handle that is none. */
static void bad_engine(nixlpush_handle h, const char *text) {
  const nixlpush_region region = good_region();
  const nixlpush_layout layout = good_layout(&region);
  const nixlpush_step step = {.struct_size = sizeof step};
  nixlpush_stats stats = {.struct_size = sizeof stats};
  nixlpush_event event;
  uint64_t len;
  WANT(nixlpush_engine_register(h, &layout, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_engine_metadata(h, NULL, 0, &len, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_submit(h, &step, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_event_fd(h, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_poll(h, &event, 1, sizeof event, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_engine_stats(h, &stats, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_engine_close(h, &err), NIXLPUSH_EHANDLE, text);
}

static void bad_channel(nixlpush_handle h, const char *text) {
  WANT(nixlpush_sidechannel_port(h, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_sidechannel_publish(h, 0, 0, "x", 1, &err), NIXLPUSH_EHANDLE, text);
  WANT(nixlpush_sidechannel_close(h, &err), NIXLPUSH_EHANDLE, text);
}

static void never_opened(void) {
  static const nixlpush_handle handles[] = {0, 1, 12345, UINT64_MAX};
  for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
    bad_engine(handles[i], "was never an engine");
    bad_channel(handles[i], "was never a side channel");
  }
}

/* An engine without a cache: what needs one says so. */
static void too_early(nixlpush_handle engine) {
  const nixlpush_expect x = good_expect(1);
  uint64_t len = 0;
  WANT(submit(engine, &x, 1, NULL, 0), NIXLPUSH_ESTATE, "register");
  WANT(nixlpush_engine_metadata(engine, NULL, 0, &len, &err), NIXLPUSH_ESTATE, "register");
}

static void bad_buffers(nixlpush_handle engine) {
  unsigned char metadata[1 << 16];
  nixlpush_event event;
  nixlpush_stats stats = {.struct_size = sizeof stats - 8};
  uint64_t len = 0;

  WANT(nixlpush_engine_metadata(engine, NULL, 0, NULL, &err), NIXLPUSH_EINVAL, "len is NULL");
  WANT(nixlpush_engine_metadata(engine, NULL, 10, &len, &err), NIXLPUSH_EINVAL, "buf is NULL");
  WANT(nixlpush_engine_metadata(engine, NULL, 0, &len, &err), NIXLPUSH_ESHORT, "too small");
  EXPECT(len > 0 && len < sizeof metadata);
  metadata[len - 1] = 0xAA, metadata[len] = 0xBB;
  WANT(nixlpush_engine_metadata(engine, metadata, len - 1, &len, &err), NIXLPUSH_ESHORT, "too small");
  EXPECT(metadata[len - 1] == 0xAA);
  WANT(nixlpush_engine_metadata(engine, metadata, UINT64_MAX, &len, &err), 0, "");
  EXPECT(metadata[len] == 0xBB);

  WANT(nixlpush_poll(engine, NULL, 0, sizeof event, &err), 0, "");
  WANT(nixlpush_poll(engine, NULL, 1, sizeof event, &err), NIXLPUSH_EINVAL, "events is NULL");
  WANT(nixlpush_poll(engine, &event, 1, 0, &err), NIXLPUSH_EINVAL, "event_size");
  WANT(nixlpush_poll(engine, &event, 1, sizeof event - 8, &err), NIXLPUSH_EINVAL, "event_size");
  WANT(nixlpush_poll(engine, &event, 1, sizeof event + 4, &err), NIXLPUSH_EINVAL, "event_size");
  WANT(nixlpush_poll(engine, &event, 1, UINT64_MAX, &err), NIXLPUSH_EINVAL, "event_size");
  WANT(nixlpush_engine_stats(engine, NULL, &err), NIXLPUSH_EINVAL, "stats is NULL");
  WANT(nixlpush_engine_stats(engine, &stats, &err), NIXLPUSH_EINVAL, "struct_size");
}

static void bad_channels(nixlpush_handle engine) {
  nixlpush_handle channel = 7, second = 7;
  int32_t port;

  WANT(nixlpush_sidechannel_open("127.0.0.1", 0, NULL, &err), NIXLPUSH_EINVAL, "channel is NULL");
  WANT(nixlpush_sidechannel_open(NULL, 0, &channel, &err), NIXLPUSH_EINVAL, "host is NULL");
  WANT(nixlpush_sidechannel_open("127.0.0.1", 65536, &channel, &err), NIXLPUSH_EINVAL, "port");
  WANT(nixlpush_sidechannel_open("203.0.113.1", 0, &channel, &err), NIXLPUSH_ENETWORK, "203.0.113.1");
  WANT(nixlpush_sidechannel_open("127.0.0.1", 0, &channel, &err), 0, "");
  port = nixlpush_sidechannel_port(channel, &err);
  EXPECT(port > 0 && port < 65536);
  WANT(nixlpush_sidechannel_open("127.0.0.1", (uint32_t)port, &second, &err), NIXLPUSH_ENETWORK, "in use");
  EXPECT(second == 0);
  WANT(nixlpush_sidechannel_publish(channel, 0, 0, NULL, 4, &err), NIXLPUSH_EINVAL, "metadata is NULL");
  WANT(nixlpush_sidechannel_publish(channel, 0, 0, "x", UINT64_MAX, &err), NIXLPUSH_EINVAL, "metadata");
  WANT(nixlpush_sidechannel_publish(channel, 0, 0, "x", 1, &err), 0, "");

  bad_engine(channel, "is a side channel, not an engine");
  bad_channel(engine, "is an engine, not a side channel");
  WANT(nixlpush_sidechannel_close(channel, &err), 0, "");
  bad_channel(channel, "is closed");
}

/* The error struct itself: absent, short, or of nobody knows what size. */
static void bad_errors(void) {
  union { nixlpush_error e; unsigned char bytes[sizeof(nixlpush_error)]; } u;
  uint32_t size;

  EXPECT(nixlpush_engine_close(1, NULL) == NIXLPUSH_EHANDLE);
  for (size = 0; size < sizeof u; size++) {
    int untouched = 1;
    memset(&u, 0xCC, sizeof u);
    u.e.struct_size = size;
    nixlpush_engine_close(1, &u.e);
    for (size_t i = size < 4 ? 4 : size; i < sizeof u; i++) untouched &= u.bytes[i] == 0xCC;
    if (untouched && (size < 9 || strlen(u.e.message) < size - 8)) continue;
    clear_error();
    judge(__FILE__, __LINE__, "an error struct of another size", (int32_t)size, 0, "");
  }
  u.e.struct_size = UINT32_MAX;
  nixlpush_engine_close(1, &u.e);
  EXPECT(strlen(u.e.message) < sizeof u.e.message);
}

static void bad_logs(void) {
  char line[8192];
  struct pollfd ready = {.fd = nixlpush_log_fd(), .events = POLLIN};
  EXPECT(nixlpush_drain_log(NULL, 10) == NIXLPUSH_EINVAL);
  EXPECT(nixlpush_log_level(-1) == NIXLPUSH_EINVAL);
  EXPECT(nixlpush_log_level(INT32_MAX) == NIXLPUSH_EINVAL);
  EXPECT(nixlpush_log_level(10) == 0 && nixlpush_log_level(20) == 0);
  EXPECT(ready.fd >= 0);
  if (poll(&ready, 1, 0) == 1) {
    EXPECT(nixlpush_drain_log(line, 0) == NIXLPUSH_ESHORT);
    EXPECT(nixlpush_drain_log(line, 3) == NIXLPUSH_ESHORT);
  }
  while (nixlpush_drain_log(line, sizeof line) > 0) continue;
  EXPECT(poll(&ready, 1, 0) == 0 && nixlpush_drain_log(line, sizeof line) == 0);
}

/* Many threads use one engine while others close it. */
typedef struct user { pthread_t thread; nixlpush_handle engine; int closes; } user;

static void *use_and_close(void *argument) {
  user *u = argument;
  const nixlpush_step step = {.struct_size = sizeof step};
  nixlpush_stats stats = {.struct_size = sizeof stats};
  nixlpush_event event;
  for (int i = 0; i < 200; i++) {
    nixlpush_submit(u->engine, &step, NULL);
    nixlpush_poll(u->engine, &event, 1, sizeof event, NULL);
    nixlpush_engine_stats(u->engine, &stats, NULL);
  }
  u->closes = nixlpush_engine_close(u->engine, NULL) == 0;
  return NULL;
}

static void close_in_threads(nixlpush_handle engine) {
  user users[8];
  int closes = 0;
  for (int i = 0; i < 8; i++) {
    users[i].engine = engine;
    EXPECT(pthread_create(&users[i].thread, NULL, use_and_close, &users[i]) == 0);
  }
  for (int i = 0; i < 8; i++) {
    pthread_join(users[i].thread, NULL);
    closes += users[i].closes;
  }
  EXPECT(closes == 1);
}

int main(int argc, char **argv) {
  nixlpush_handle engine = 0, next = 0;
  nixlpush_options options;
  nixlpush_region region = good_region();
  nixlpush_layout layout = good_layout(&region);
  nixlpush_part part = good_part();

  region.parts = &part, region.num_parts = 1;
  library = argc > 1 ? argv[1] : NULL;
  options = good_options();
  EXPECT(nixlpush_abi_version() / 1000 == NIXLPUSH_ABI_VERSION / 1000);
  EXPECT(strlen(nixlpush_version()) > 0);
  never_opened();
  bad_errors();
  bad_options();
  EXPECT(nixlpush_open_handles() == 0);

  WANT(nixlpush_engine_open(&options, &engine, &err), 0, "");
  too_early(engine);
  bad_layouts(engine);
  WANT(nixlpush_engine_register(engine, &layout, &err), 0, "");
  WANT(nixlpush_engine_register(engine, &layout, &err), NIXLPUSH_ESTATE, "registered");
  bad_buffers(engine);
  bad_steps(engine);
  odd_steps(engine);
  bad_channels(engine);
  close_in_threads(engine);
  bad_engine(engine, "is closed");

  WANT(nixlpush_engine_open(&options, &next, &err), 0, "");
  EXPECT(next != engine);
  WANT(nixlpush_engine_close(next, &err), 0, "");
  bad_logs();
  EXPECT(nixlpush_open_handles() == 0);
  printf("misuse: %d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
