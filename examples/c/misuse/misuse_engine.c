/* misuse_engine.c: wrong options, layouts and steps, one field at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "misuse.h"

/* Opens with changed options; a handle must come of none. */
#define BAD_OPTIONS(change, wanted, text)                            \
  do {                                                               \
    nixlpush_options o = good_options();                             \
    nixlpush_handle h = 7;                                           \
    change;                                                          \
    WANT(nixlpush_engine_open(&o, &h, &err), wanted, text);          \
    EXPECT(h == 0);                                                  \
  } while (0)

void bad_options(void) {
  const nixlpush_param no_key = {NULL, "x"}, no_value = {"num_threads", NULL};
  nixlpush_backend unnamed = {NULL, NULL, 0}, unknown = {"NO_SUCH", NULL, 0}, missing = {"UCX", NULL, 2};
  nixlpush_backend bad_param = {"UCX", &no_value, 1};
  nixlpush_options good = good_options();
  nixlpush_handle h;
  char *longest = malloc(200000);
  memset(longest, 'x', 199999);
  longest[199999] = 0;

  WANT(nixlpush_engine_open(NULL, &h, &err), NIXLPUSH_EINVAL, "options is NULL");
  WANT(nixlpush_engine_open(&good, NULL, &err), NIXLPUSH_EINVAL, "engine is NULL");
  BAD_OPTIONS(o.struct_size = 0, NIXLPUSH_EINVAL, "struct_size");
  BAD_OPTIONS(o.struct_size = sizeof o - 8, NIXLPUSH_EINVAL, "struct_size");
  BAD_OPTIONS(o.struct_size = UINT32_MAX, NIXLPUSH_EINVAL, "struct_size");
  BAD_OPTIONS(o.engine_id = NULL, NIXLPUSH_EINVAL, "engine id");
  BAD_OPTIONS(o.engine_id = "", NIXLPUSH_EINVAL, "engine id");
  BAD_OPTIONS(o.engine_id = "\xff\xfe", NIXLPUSH_EINVAL, "engine_id is not UTF-8");
  BAD_OPTIONS(o.engine_id = longest, NIXLPUSH_EINVAL, "engine_id");
  BAD_OPTIONS(o.side_channel_host = NULL, NIXLPUSH_EINVAL, "host");
  BAD_OPTIONS(o.side_channel_port = 0, NIXLPUSH_EINVAL, "port 0");
  BAD_OPTIONS(o.side_channel_port = 65536, NIXLPUSH_EINVAL, "port 65536");
  BAD_OPTIONS(o.tp_rank = 2; o.tp_size = 2, NIXLPUSH_EINVAL, "rank 2");
  BAD_OPTIONS(o.pp_rank = UINT32_MAX, NIXLPUSH_EINVAL, "rank 4294967295");
  BAD_OPTIONS(o.writers = UINT32_MAX, NIXLPUSH_EINVAL, "writers");
  BAD_OPTIONS(o.ignore_compat = 2, NIXLPUSH_EINVAL, "ignore_compat");
  BAD_OPTIONS(o.peer_ttl_ms = INT64_MAX, NIXLPUSH_EINVAL, "peer_ttl_ms");
  BAD_OPTIONS(o.num_backends = 1, NIXLPUSH_EINVAL, "backends is NULL");
  BAD_OPTIONS(o.backends = &unnamed; o.num_backends = UINT64_MAX, NIXLPUSH_EINVAL, "backends");
  BAD_OPTIONS(o.backends = &unnamed; o.num_backends = 1, NIXLPUSH_EINVAL, "name of a backend is NULL");
  BAD_OPTIONS(o.backends = &missing; o.num_backends = 1, NIXLPUSH_EINVAL, "params of a backend is NULL");
  BAD_OPTIONS(o.backends = &bad_param; o.num_backends = 1, NIXLPUSH_EINVAL, "value");
  BAD_OPTIONS(o.compat_factors = &no_key; o.num_compat_factors = 1, NIXLPUSH_EINVAL, "key");
  BAD_OPTIONS(o.num_compat_factors = HUGE_COUNT, NIXLPUSH_EINVAL, "compat_factors");
  BAD_OPTIONS(o.nixl_library = "/no/such/libnixl_capi.so", NIXLPUSH_ENIXL, "/no/such/libnixl_capi.so");
  BAD_OPTIONS(o.backends = &unknown; o.num_backends = 1, NIXLPUSH_ENIXL, "NO_SUCH");
  free(longest);
}

#define BAD_LAYOUT(change, text)                                                \
  do {                                                                          \
    nixlpush_part p = good_part();                                              \
    nixlpush_region r = good_region();                                          \
    nixlpush_layout l = good_layout(&r);                                        \
    nixlpush_memory m = *l.memory;                                              \
    l.memory = &m;                                                              \
    r.parts = &p, r.num_parts = 1;                                              \
    change;                                                                     \
    WANT(nixlpush_engine_register(engine, &l, &err), NIXLPUSH_EINVAL, text);      \
  } while (0)

static void bad_parts(nixlpush_handle engine) {
  BAD_LAYOUT(r.parts = NULL, "parts is NULL");
  BAD_LAYOUT(r.num_parts = UINT64_MAX, "parts, at most");
  BAD_LAYOUT(p.component = NULL, "component of a part is NULL");
  BAD_LAYOUT(p.component = "\xff", "component of a part is not UTF-8");
  BAD_LAYOUT(p.component = "", "without a name");
  BAD_LAYOUT(p.size = 0, "elements of 0 bytes");
  BAD_LAYOUT(p.size = UINT64_MAX, "bytes each");
  BAD_LAYOUT(p.offset = UINT64_MAX, "do not fit into memory");
  BAD_LAYOUT(p.offset = BLOCK_LEN, "not within the memory");
  BAD_LAYOUT(p.num_layers = UINT32_MAX; p.layer_stride = UINT64_MAX, "do not fit into memory");
  BAD_LAYOUT(p.num_layers = 2, "0 bytes apart");
  BAD_LAYOUT(p.num_rows = 2, "0 bytes apart");
  BAD_LAYOUT(p.num_rows = UINT32_MAX; p.row_stride = UINT64_MAX, "from block to block");
  BAD_LAYOUT(p.num_heads = 3, "heads up to 3 of 2");
  BAD_LAYOUT(p.num_heads = 1, "rank 0 of 1 has");
  BAD_LAYOUT(p.heads_of = UINT32_MAX, "rank 0 of 1 has");
  BAD_LAYOUT(p.first_head = UINT32_MAX, "heads from 4294967295 on");
  BAD_LAYOUT(p.head_stride = 1, "1 bytes apart");
  BAD_LAYOUT(p.token_stride = 1, "1 bytes apart");
  BAD_LAYOUT(p.token_stride = UINT64_MAX, "bytes apart");
  BAD_LAYOUT(r.block_len = 1, "bytes in a block of 1");
  BAD_LAYOUT(r.tokens = NIXLPUSH_ONE_STATE, "0 tokens of 128 bytes");
  BAD_LAYOUT(r.tokens = NIXLPUSH_ONE_STATE - 1, "tokens in a block");
  BAD_LAYOUT(r.tokens = 17, "4352 bytes in a block of 4096");
  BAD_LAYOUT(r.per_id = BLOCKS + 1, "blocks per block id");
  BAD_LAYOUT(r.per_id = UINT32_MAX, "blocks per block id");
  BAD_LAYOUT(r.group = -1; r.window = 64, "window");
}

/* Puts a stock region into a layout, on the address and length of its region. */
static void with_stock(nixlpush_layout *l, nixlpush_stock_region *s, nixlpush_member *m) {
  const nixlpush_region *r = l->regions;
  *m = (nixlpush_member){.name = "layer"};
  *s = (nixlpush_stock_region){.struct_size = sizeof *s, .base = r->base, .block_len = r->block_len, .stride = r->stride,
                               .num_blocks = r->num_blocks, .name = "layer", .members = m, .num_members = 1};
  l->stock_regions = s;
  l->num_stock_regions = 1;
}

#define BAD_STOCK(change, text)    \
  do {                             \
    nixlpush_stock_region s;       \
    nixlpush_member of;            \
    BAD_LAYOUT(with_stock(&l, &s, &of); change, text); \
  } while (0)

static void bad_stock(nixlpush_handle engine) {
  BAD_STOCK(l.stock_regions = NULL, "stock regions is NULL");
  BAD_STOCK(l.num_stock_regions = UINT64_MAX, "stock regions, at most");
  BAD_STOCK(s.struct_size = 0, "stock region 0: invalid argument: struct_size");
  BAD_STOCK(s.mem = 9, "stock region 0: invalid argument: mem is 9");
  BAD_STOCK(s.members = NULL, "members is NULL");
  BAD_STOCK(s.num_members = UINT64_MAX, "members, at most");
  BAD_STOCK(of.name = NULL, "name of a member is NULL");
  BAD_STOCK(s.base += 1, "begins in none of the stock regions");
}

void bad_layouts(nixlpush_handle engine) {
  WANT(nixlpush_engine_register(engine, NULL, &err), NIXLPUSH_EINVAL, "layout is NULL");
  BAD_LAYOUT(l.struct_size = 0, "struct_size");
  BAD_LAYOUT(l.reserved = 1, "reserved");
  BAD_LAYOUT(l.regions = NULL, "regions is NULL");
  BAD_LAYOUT(l.num_regions = 0, "without regions");
  BAD_LAYOUT(l.num_regions = UINT64_MAX, "regions");
  BAD_LAYOUT(l.memory = NULL, "memory ranges is NULL");
  BAD_LAYOUT(l.num_memory = UINT64_MAX / 2, "memory ranges");
  BAD_LAYOUT(l.block_size = 0, "0 tokens");
  BAD_LAYOUT(l.num_blocks = 0, "0 blocks");
  BAD_LAYOUT(r.struct_size = 0, "region 0: invalid argument: struct_size");
  BAD_LAYOUT(r.struct_size = sizeof r - 8, "struct_size");
  BAD_LAYOUT(r.num_blocks = 0, "0 blocks");
  BAD_LAYOUT(r.block_len = 0, "0 bytes");
  BAD_LAYOUT(r.num_parts = 0; r.stride = 1, "1 bytes apart");
  BAD_LAYOUT(r.group = -2, "group -2");
  BAD_LAYOUT(r.group = INT32_MAX, "group");
  BAD_LAYOUT(r.mem = 7, "region 0: invalid argument: mem is 7");
  BAD_LAYOUT(r.reserved = 1, "reserved");
  BAD_LAYOUT(r.base += 1, "not within the memory");
  BAD_LAYOUT(r.stride = UINT64_MAX / 4, "bytes apart");
  BAD_LAYOUT(m.len -= 1, "not within the memory");
  BAD_LAYOUT(m.mem = 2, "mem of a memory range is 2");
  BAD_LAYOUT(m.len = UINT64_MAX, "memory 0");
  bad_stock(engine);
  bad_parts(engine);
}

#define BAD_EXPECT(change, text)                                              \
  do {                                                                        \
    nixlpush_expect x = good_expect(1);                                       \
    change;                                                                   \
    WANT(submit(engine, &x, 1, NULL, 0), NIXLPUSH_EINVAL, text);              \
  } while (0)
#define BAD_OFFER(change, text)                                               \
  do {                                                                        \
    nixlpush_offer o = good_offer(1);                                         \
    change;                                                                   \
    WANT(submit(engine, NULL, 0, &o, 1), NIXLPUSH_EINVAL, text);              \
  } while (0)

void bad_steps(nixlpush_handle engine) {
  static const uint32_t out_of_range[] = {1, BLOCKS, 2}, all[] = {UINT32_MAX}, two[] = {1, 2};
  nixlpush_step s = {.struct_size = 8};
  nixlpush_expect xs[2] = {good_expect(1), good_expect(2)};
  nixlpush_offer os[2] = {good_offer(1), good_offer(1)};
  nixlpush_stats stats = {.struct_size = sizeof stats};

  WANT(nixlpush_submit(engine, NULL, &err), NIXLPUSH_EINVAL, "step is NULL");
  WANT(nixlpush_submit(engine, &s, &err), NIXLPUSH_EINVAL, "struct_size");
  s = (nixlpush_step){.struct_size = sizeof s, .num_cancels = 1};
  WANT(nixlpush_submit(engine, &s, &err), NIXLPUSH_EINVAL, "cancels is NULL");
  s.num_cancels = UINT64_MAX;
  WANT(nixlpush_submit(engine, &s, &err), NIXLPUSH_EINVAL, "cancels");
  WANT(submit(engine, NULL, 1, NULL, 0), NIXLPUSH_EINVAL, "expects is NULL");
  WANT(submit(engine, xs, UINT64_MAX, NULL, 0), NIXLPUSH_EINVAL, "expects");
  WANT(submit(engine, NULL, 0, NULL, 1), NIXLPUSH_EINVAL, "offers is NULL");
  WANT(submit(engine, NULL, 0, os, HUGE_COUNT), NIXLPUSH_EINVAL, "offers");

  BAD_EXPECT(x.struct_size = 0, "struct_size");
  BAD_EXPECT(x.struct_size = 12, "struct_size");
  BAD_EXPECT(x.request_id = NULL, "request id");
  BAD_EXPECT(x.request_id = "\xc3", "request_id is not UTF-8");
  BAD_EXPECT(x.producer_engine_id = NULL, "engine id");
  BAD_EXPECT(x.producer_host = NULL, "host");
  BAD_EXPECT(x.producer_port = 0, "port 0");
  BAD_EXPECT(x.producer_port = 65536, "port 65536");
  BAD_EXPECT(x.blocks.ids = NULL, "block ids is NULL");
  BAD_EXPECT(x.blocks.counts = NULL, "groups is NULL");
  BAD_EXPECT(x.blocks.num_groups = UINT32_MAX, "groups");
  BAD_EXPECT(x.blocks.counts = all, "block ids");
  BAD_EXPECT(x.blocks.counts = two; x.blocks.num_groups = 2, "groups");
  BAD_EXPECT(x.blocks.ids = out_of_range, "8");
  BAD_EXPECT(x.blocks.reserved = 1, "reserved");
  BAD_OFFER(o.struct_size = 4, "struct_size");
  BAD_OFFER(o.request_id = NULL, "request id");
  BAD_OFFER(o.request_id = "", "request id");
  BAD_OFFER(o.blocks.num_groups = 0, "groups");
  BAD_OFFER(o.blocks.ids = NULL, "block ids is NULL");
  BAD_OFFER(o.blocks.counts = all, "block ids");
  BAD_OFFER(o.blocks.ids = out_of_range, "8");

  xs[1].struct_size = sizeof xs[1] + 8;
  WANT(submit(engine, xs, 2, NULL, 0), NIXLPUSH_EINVAL, "expect 1");
  WANT(submit(engine, NULL, 0, os, 2), NIXLPUSH_EINVAL, "tag 1");
  xs[0].blocks.ids = out_of_range;
  WANT(submit(engine, xs, 1, os, 1), NIXLPUSH_EINVAL, "expect 0");

  /* All or nothing: of all these, none was taken. */
  WANT(nixlpush_engine_stats(engine, &stats, &err), 0, "");
  EXPECT(stats.offers == 0 && stats.expects == 0);
}

/* What looks odd and is right. */
void odd_steps(nixlpush_handle engine) {
  struct { nixlpush_offer offer; uint64_t added_later; } newer[2] = {{good_offer(1), 5}, {good_offer(2), 5}};
  nixlpush_offer again = good_offer(1);
  const uint64_t unknown[] = {77, 77, UINT64_MAX}, both[] = {1, 2};
  nixlpush_step s = {.struct_size = sizeof s};
  nixlpush_event events[4];
  int got = 0, tries;

  WANT(nixlpush_submit(engine, &s, &err), 0, ""); /* nothing at all */
  s.cancels = unknown, s.num_cancels = 3;
  WANT(nixlpush_submit(engine, &s, &err), 0, "");
  newer[0].offer.struct_size = newer[1].offer.struct_size = sizeof newer[0];
  newer[1].offer.request_id = "p-2", newer[1].offer.transfer_id = "t-2";
  WANT(submit(engine, NULL, 0, &newer[0].offer, 2), 0, "");
  WANT(submit(engine, NULL, 0, &again, 1), NIXLPUSH_EINVAL, "tag 1");
  s.cancels = both, s.num_cancels = 2;
  WANT(nixlpush_submit(engine, &s, &err), 0, "");
  for (tries = 0; got < 2 && tries < 5000; tries++) {
    int32_t n = nixlpush_poll(engine, events + got, UINT64_MAX, sizeof events[0], NULL);
    if (n > 0) got += n;
    pause_ms(1);
  }
  EXPECT(got == 2 && events[0].kind == NIXLPUSH_SEND_FAILED && events[1].reason == NIXLPUSH_REASON_CANCELLED);
}
