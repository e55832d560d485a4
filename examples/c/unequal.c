/* unequal.c: a producer and a consumer whose caches are laid out unequally, in one process.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   unequal [LIBNIXL]
 *
 * The producer's blocks have 16 tokens, head by head, K and V of a token side by side. The
 * consumer's have 32 tokens with all heads, and all K of a layer before all V. Each side says
 * so in parts; the library does the rest. The prompt has 75 tokens, of which the consumer has
 * the first 32 already. Exit status 0: every number arrived where it should, and nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

enum { LAYERS = 2, HEADS = 2, BLOCKS = 12, ELEMENT = 32, KINDS = 2, UNTOUCHED = 0xEE };
enum { PROMPT = 75, CACHED = 32, SOURCES = 5, TARGETS = 2 };
enum { ARRIVED = (PROMPT + 15) / 16 * 16 }; /* the producer's last block moves to its end */

static const uint32_t SOURCE[SOURCES] = {7, 6, 2, 11, 0};
static const uint32_t TARGET[TARGETS] = {9, 4};

/* How a side lays out its cache: BLOCKS blocks of so many tokens in each layer. */
typedef struct shape {
  uint32_t tokens;
  int apart; /* tokens before heads, K and V apart; else heads before tokens, K and V packed */
} shape;

static const shape PRODUCER = {16, 0}, CONSUMER = {32, 1};

static size_t block_len(const shape *s) { return (size_t)s->tokens * HEADS * KINDS * ELEMENT; }
static size_t cache_len(const shape *s) { return LAYERS * BLOCKS * block_len(s); }

/* Where the K (kind 0) or V (kind 1) of a token in a head is, counted by hand. */
static unsigned char *element(unsigned char *cache, const shape *s, int layer, uint32_t block, int kind,
                              uint32_t head, uint32_t token) {
  unsigned char *start = cache + ((size_t)layer * BLOCKS + block) * block_len(s);
  if (s->apart) return start + ((size_t)(kind * (int)s->tokens + (int)token) * HEADS + head) * ELEMENT;
  return start + (((size_t)head * s->tokens + token) * KINDS + (size_t)kind) * ELEMENT;
}

static unsigned char pattern(int layer, int kind, uint32_t head, uint32_t token, int offset) {
  uint32_t x = (((uint32_t)(layer * KINDS + kind) * HEADS + head) * 4096 + token) * 2654435761u;
  return (unsigned char)((x + (uint32_t)offset * 40503u) >> 16);
}

/* What is in a block, said in numbers instead of by element(). */
static void describe_parts(nixlpush_part parts[KINDS], const shape *s, int layer) {
  static const char *const components[KINDS] = {"k", "v"};
  int kind;

  memset(parts, 0, KINDS * sizeof *parts);
  for (kind = 0; kind < KINDS; kind++) {
    nixlpush_part *p = &parts[kind];
    p->component = components[kind];
    p->size = ELEMENT;
    p->first_layer = (uint32_t)layer;
    p->num_heads = HEADS;
    p->heads_of = HEADS;
    p->offset = (uint64_t)kind * (s->apart ? block_len(s) / KINDS : ELEMENT);
    p->head_stride = s->apart ? ELEMENT : (uint64_t)s->tokens * KINDS * ELEMENT;
    p->token_stride = s->apart ? HEADS * ELEMENT : KINDS * ELEMENT;
  }
}

static void describe_cache(worker *w, const shape *s) {
  static const char *const names[LAYERS] = {"layer.0", "layer.1"};
  nixlpush_part parts[LAYERS][KINDS];
  nixlpush_region regions[LAYERS];
  nixlpush_layout layout;
  int i;

  memset(regions, 0, sizeof regions);
  for (i = 0; i < LAYERS; i++) {
    describe_parts(parts[i], s, i);
    regions[i].struct_size = sizeof regions[i];
    regions[i].base = (uint64_t)(uintptr_t)w->cache + (uint64_t)i * BLOCKS * block_len(s);
    regions[i].block_len = block_len(s);
    regions[i].stride = block_len(s);
    regions[i].num_blocks = BLOCKS;
    regions[i].name = names[i];
    regions[i].parts = parts[i];
    regions[i].num_parts = KINDS;
  }
  memset(&layout, 0, sizeof layout);
  layout.struct_size = sizeof layout;
  layout.block_size = s->tokens;
  layout.num_blocks = BLOCKS;
  layout.name = s->apart ? "tokens first" : "heads first";
  layout.attention_backend = "none";
  layout.regions = regions;
  layout.num_regions = LAYERS;
  register_cache(w, &layout, cache_len(s));
}

/* Writes what the producer has computed: each number of each token is another. */
static void compute_prompt(unsigned char *cache) {
  int layer, kind, offset;
  uint32_t head, token;

  for (layer = 0; layer < LAYERS; layer++)
    for (kind = 0; kind < KINDS; kind++)
      for (head = 0; head < HEADS; head++)
        for (token = 0; token < ARRIVED; token++)
          for (offset = 0; offset < ELEMENT; offset++)
            element(cache, &PRODUCER, layer, SOURCE[token / 16], kind, head, token % 16)[offset] =
                pattern(layer, kind, head, token, offset);
}

/* The token of the prompt that belongs into a place of the consumer's cache; -1: none. */
static int token_at(uint32_t block, uint32_t token) {
  uint32_t i, at;

  for (i = 0; i < TARGETS; i++) {
    at = CACHED + i * CONSUMER.tokens + token;
    if (TARGET[i] == block && at < ARRIVED) return (int)at;
  }
  return -1;
}

/* Compares the whole cache of the consumer with what must be there. Returns wrong elements. */
static int wrong_elements(unsigned char *cache) {
  int layer, kind, offset, wrong = 0;
  uint32_t block, head, token;

  for (layer = 0; layer < LAYERS; layer++)
    for (block = 0; block < BLOCKS; block++)
      for (kind = 0; kind < KINDS; kind++)
        for (head = 0; head < HEADS; head++)
          for (token = 0; token < CONSUMER.tokens; token++) {
            const unsigned char *got = element(cache, &CONSUMER, layer, block, kind, head, token);
            int from = token_at(block, token), bad = 0;
            for (offset = 0; offset < ELEMENT; offset++)
              bad |= got[offset] != (from < 0 ? UNTOUCHED : pattern(layer, kind, head, (uint32_t)from, offset));
            wrong += bad;
          }
  return wrong;
}

static void start(worker *w, const char *role, const shape *s, const char *library) {
  memset(w, 0, sizeof *w);
  w->role = role;
  w->cache = (unsigned char *)malloc(cache_len(s));
  if (w->cache == NULL) fail(w, "start", "out of memory");
  memset(w->cache, UNTOUCHED, cache_len(s));
  open_worker(w, library);
  describe_cache(w, s);
}

int main(int argc, char **argv) {
  const char *library = argc > 1 ? argv[1] : NULL;
  worker producer, consumer;
  nixlpush_event event;
  int wrong;

  start(&producer, "producer", &PRODUCER, library);
  start(&consumer, "consumer", &CONSUMER, library);
  compute_prompt(producer.cache);
  expect(&consumer, 0, producer.port, TARGET, TARGETS);
  offer(&producer, 0, PROMPT, SOURCE, SOURCES);

  event = next_event(&producer);
  if (event.kind != NIXLPUSH_SENT) fail(&producer, "send", event.message);
  printf("producer: %llu bytes in %llu descriptors\n", (unsigned long long)event.bytes,
         (unsigned long long)event.descriptors);
  event = next_event(&consumer);
  if (event.kind != NIXLPUSH_RECEIVED) fail(&consumer, "receive", event.message);
  wrong = wrong_elements(consumer.cache);
  printf("consumer: %d of %d elements are wrong, untouched ones included\n", wrong,
         (int)(cache_len(&CONSUMER) / ELEMENT));
  close_worker(&producer);
  close_worker(&consumer);
  return wrong == 0 && nixlpush_open_handles() == 0 ? 0 : 1;
}
