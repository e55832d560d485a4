/* host.c: see host.h. It is C11 and C++17.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "host.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 30000 };

/* The library never prints: its log lines are for the host to show. */
static void show_log(const worker *w) {
  char lines[65536];
  int32_t n;
  while ((n = nixlpush_drain_log(lines, sizeof lines)) > 0)
    fprintf(stderr, "[%s log]\n%.*s", w->role, n, lines);
}

void fail(const worker *w, const char *what, const char *why) {
  fprintf(stderr, "%s: %s: %s\n", w->role, what, why);
  show_log(w);
  exit(1);
}

void check(const worker *w, const char *what, int32_t code, const nixlpush_error *err) {
  if (code < 0) fail(w, what, err->message);
}

nixlpush_error no_error(void) {
  nixlpush_error err;

  memset(&err, 0, sizeof err);
  err.struct_size = sizeof err;
  return err;
}

/* Binds the side channel first: its port is part of what the engine tells its peers. */
void open_worker(worker *w, const char *library) {
  nixlpush_error err = no_error();
  nixlpush_options options;
  int32_t port;

  if (nixlpush_abi_version() / 1000 != NIXLPUSH_ABI_VERSION / 1000)
    fail(w, "load", "the library has another interface than the header");

  check(w, "open side channel", nixlpush_sidechannel_open("127.0.0.1", 0, &w->channel, &err), &err);
  port = nixlpush_sidechannel_port(w->channel, &err);
  check(w, "ask for the port", port, &err);
  w->port = (uint32_t)port;

  memset(&options, 0, sizeof options); /* zero is the default of every field */
  options.struct_size = sizeof options;
  options.engine_id = w->role;
  options.side_channel_host = "127.0.0.1";
  options.side_channel_port = w->port;
  options.nixl_library = library;
  options.compat_hash = "examples/c";
  check(w, "open engine", nixlpush_engine_open(&options, &w->engine, &err), &err);
}

/* Two calls for the metadata: the first tells its length. */
static void publish(const worker *w) {
  nixlpush_error err = no_error();
  void *metadata;
  uint64_t len = 0;

  if (nixlpush_engine_metadata(w->engine, NULL, 0, &len, &err) != NIXLPUSH_ESHORT)
    fail(w, "ask for the length of the metadata", err.message);
  metadata = malloc(len);
  if (metadata == NULL) fail(w, "publish", "out of memory");
  check(w, "get metadata", nixlpush_engine_metadata(w->engine, metadata, len, &len, &err), &err);
  check(w, "publish", nixlpush_sidechannel_publish(w->channel, 0, 0, metadata, len, &err), &err);
  free(metadata);
}

void register_cache(worker *w, nixlpush_layout *layout, uint64_t len) {
  nixlpush_error err = no_error();
  nixlpush_memory memory;

  memset(&memory, 0, sizeof memory);
  memory.addr = (uint64_t)(uintptr_t)w->cache;
  memory.len = len;
  memory.mem = NIXLPUSH_DRAM;
  layout->memory = &memory;
  layout->num_memory = 1;
  check(w, "register cache", nixlpush_engine_register(w->engine, layout, &err), &err);
  publish(w);
}

void expect(const worker *w, int prompt, uint32_t producer_port, const uint32_t *blocks, uint32_t count) {
  nixlpush_error err = no_error();
  nixlpush_expect entry;
  nixlpush_step step;
  char request[32], transfer[32];

  snprintf(request, sizeof request, "consumer-request-%d", prompt);
  snprintf(transfer, sizeof transfer, "transfer-%d", prompt);
  memset(&entry, 0, sizeof entry);
  entry.struct_size = sizeof entry;
  entry.tag = (uint64_t)prompt + 1;
  entry.request_id = request;
  entry.transfer_id = transfer;
  entry.producer_engine_id = "producer";
  entry.producer_host = "127.0.0.1";
  entry.producer_port = producer_port;
  entry.blocks.ids = blocks;
  entry.blocks.counts = &count;
  entry.blocks.num_groups = 1;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  step.expects = &entry;
  step.num_expects = 1;
  check(w, "expect", nixlpush_submit(w->engine, &step, &err), &err);
}

void offer(const worker *w, int prompt, uint64_t tokens, const uint32_t *blocks, uint32_t count) {
  nixlpush_error err = no_error();
  nixlpush_offer entry;
  nixlpush_step step;
  char request[32], transfer[32];

  snprintf(request, sizeof request, "producer-request-%d", prompt);
  snprintf(transfer, sizeof transfer, "transfer-%d", prompt);
  memset(&entry, 0, sizeof entry);
  entry.struct_size = sizeof entry;
  entry.tag = (uint64_t)prompt + 1;
  entry.request_id = request;
  entry.transfer_id = transfer;
  entry.blocks.ids = blocks;
  entry.blocks.counts = &count;
  entry.blocks.num_groups = 1;
  entry.tokens = tokens;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  step.offers = &entry;
  step.num_offers = 1;
  check(w, "offer", nixlpush_submit(w->engine, &step, &err), &err);
}

nixlpush_event next_event(const worker *w) {
  nixlpush_error err = no_error();
  nixlpush_event event;
  struct pollfd ready;
  int32_t n;

  ready.fd = nixlpush_event_fd(w->engine, &err);
  ready.events = POLLIN;
  check(w, "event fd", ready.fd, &err);
  while ((n = nixlpush_poll(w->engine, &event, 1, sizeof event, &err)) == 0) {
    int woken = poll(&ready, 1, PATIENCE_MS);
    if (woken == 0) fail(w, "wait for an event", "none came in time");
    if (woken < 0 && errno != EINTR) fail(w, "wait for an event", strerror(errno));
  }
  check(w, "poll", n, &err);
  return event;
}

void close_worker(worker *w) {
  nixlpush_error err = no_error();

  check(w, "close engine", nixlpush_engine_close(w->engine, &err), &err);
  check(w, "close side channel", nixlpush_sidechannel_close(w->channel, &err), &err);
  free(w->cache); /* not before the engine is closed: peers may write into it */
}
