/* push.c: one process pushes blocks of memory into another one's, through nixlpush.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *   push [LIBNIXL]           the producer; it starts the consumer by itself
 *
 * LIBNIXL is the path of libnixl_capi.so; without it the dynamic loader looks for one.
 * Exit status 0: every byte arrived where it should, and nowhere else.
 *
 * It is C11 and C++17, and written to be read from bottom to top: main, the two roles, then
 * what they share; host.c has what is no different from host to host.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

/* The cache of both sides: LAYERS arrays of BLOCKS blocks, each of BLOCK_LEN bytes. */
enum { LAYERS = 4, BLOCKS = 64, BLOCK_LEN = 4096, CACHE_LEN = LAYERS * BLOCKS * BLOCK_LEN };
enum { UNTOUCHED = 0xEE };

/* Three prompts: where their blocks are at the producer, and where the consumer wants them. */
enum { PROMPTS = 3, LENGTH = 6 };
static const uint32_t SOURCE[PROMPTS][LENGTH] = {
    {9, 8, 7, 6, 31, 30}, {0, 1, 2, 3, 4, 5}, {63, 40, 62, 41, 61, 42}};
static const uint32_t TARGET[PROMPTS][LENGTH] = {
    {20, 19, 18, 17, 4, 3}, {50, 51, 52, 53, 54, 55}, {0, 63, 2, 33, 1, 44}};

/* What the producer has in a byte of its cache: no two blocks are alike. */
static unsigned char pattern(int layer, uint32_t block, int offset) {
  uint32_t x = ((uint32_t)layer * BLOCKS + block) * 2654435761u + (uint32_t)offset * 40503u;
  return (unsigned char)(x >> 16);
}

static unsigned char *block_of(unsigned char *cache, int layer, uint32_t block) {
  return cache + ((size_t)layer * BLOCKS + block) * BLOCK_LEN;
}

/* One region per layer. What is in a block need not be said if both sides have it alike. */
static void describe_cache(worker *w) {
  static const char *const names[LAYERS] = {"layer.0", "layer.1", "layer.2", "layer.3"};
  nixlpush_region regions[LAYERS];
  nixlpush_layout layout;
  int i;

  memset(regions, 0, sizeof regions);
  for (i = 0; i < LAYERS; i++) {
    regions[i].struct_size = sizeof regions[i];
    regions[i].base = (uint64_t)(uintptr_t)block_of(w->cache, i, 0);
    regions[i].block_len = BLOCK_LEN;
    regions[i].stride = BLOCK_LEN;
    regions[i].num_blocks = BLOCKS;
    regions[i].mem = NIXLPUSH_DRAM;
    regions[i].name = names[i];
  }
  memset(&layout, 0, sizeof layout);
  layout.struct_size = sizeof layout;
  layout.block_size = 16;
  layout.num_blocks = BLOCKS;
  layout.name = "LBHNC";
  layout.attention_backend = "none";
  layout.regions = regions;
  layout.num_regions = LAYERS;
  register_cache(w, &layout, CACHE_LEN);
}

/* Compares the whole cache of the consumer with what must be there. Returns wrong blocks. */
static int wrong_blocks(unsigned char *cache) {
  int wrong = 0;
  int layer, prompt, i, offset;
  uint32_t block;

  for (layer = 0; layer < LAYERS; layer++)
    for (block = 0; block < BLOCKS; block++) {
      const unsigned char *got = block_of(cache, layer, block);
      int source = -1, bad = 0;
      for (prompt = 0; prompt < PROMPTS; prompt++)
        for (i = 0; i < LENGTH; i++)
          if (TARGET[prompt][i] == block) source = (int)SOURCE[prompt][i];
      for (offset = 0; offset < BLOCK_LEN; offset++) {
        unsigned char want = (unsigned char)UNTOUCHED;
        if (source >= 0) want = pattern(layer, (uint32_t)source, offset);
        bad |= got[offset] != want;
      }
      if (bad) printf("consumer: layer %d block %u is wrong\n", layer, block);
      wrong += bad;
    }
  return wrong;
}

static int consumer(worker *w, const char *library, uint32_t producer_port) {
  int i, wrong;

  memset(w->cache, UNTOUCHED, CACHE_LEN);
  open_worker(w, library);
  describe_cache(w);
  for (i = 0; i < PROMPTS; i++) expect(w, i, producer_port, TARGET[i], LENGTH);
  for (i = 0; i < PROMPTS; i++) {
    nixlpush_event event = next_event(w);
    if (event.kind != NIXLPUSH_RECEIVED) fail(w, "receive", event.message);
    printf("consumer: prompt %d has arrived\n", (int)event.tag - 1);
  }
  wrong = wrong_blocks(w->cache);
  printf("consumer: %d of %d blocks are wrong, untouched ones included\n", wrong, LAYERS * BLOCKS);
  close_worker(w);
  if (nixlpush_open_handles() != 0) fail(w, "close", "a handle is left");
  return wrong == 0 ? 0 : 1;
}

/* Starts this program again as the consumer. A forked child could not use the library, which
 * this process has loaded; a new program can. */
static pid_t start_consumer(const worker *w, const char *library) {
  char port[16];
  char *arguments[5];
  pid_t pid;
  int error;

  snprintf(port, sizeof port, "%u", w->port);
  arguments[0] = (char *)"push";
  arguments[1] = (char *)"--consumer";
  arguments[2] = port;
  arguments[3] = (char *)library; /* NULL, if none is given, ends the list */
  arguments[4] = NULL;
  error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ);
  if (error != 0) fail(w, "start the consumer", strerror(error));
  return pid;
}

static int producer(worker *w, const char *library) {
  int layer, offset, i, status;
  uint32_t block;
  pid_t child;

  for (layer = 0; layer < LAYERS; layer++)
    for (block = 0; block < BLOCKS; block++)
      for (offset = 0; offset < BLOCK_LEN; offset++)
        block_of(w->cache, layer, block)[offset] = pattern(layer, block, offset);
  open_worker(w, library);
  describe_cache(w);

  /* Either side may come first: one prompt is offered before the consumer even runs. */
  offer(w, 0, 0, SOURCE[0], LENGTH);
  child = start_consumer(w, library);
  for (i = 0; i < PROMPTS; i++) {
    nixlpush_event event = next_event(w);
    if (event.kind != NIXLPUSH_SENT) {
      kill(child, SIGKILL);
      fail(w, "send", event.message);
    }
    printf("producer: prompt %d sent, %llu bytes, %llu blocks in %llu descriptors, %.3f ms\n",
           (int)event.tag - 1, (unsigned long long)event.bytes,
           (unsigned long long)event.block_pairs, (unsigned long long)event.descriptors,
           (double)event.write_ns / 1e6);
    if (i == 0) { /* the consumer has most likely announced the others by now */
      offer(w, 1, 0, SOURCE[1], LENGTH);
      offer(w, 2, 0, SOURCE[2], LENGTH);
    }
  }
  if (waitpid(child, &status, 0) != child) fail(w, "wait for the consumer", strerror(errno));
  close_worker(w);
  if (nixlpush_open_handles() != 0) fail(w, "close", "a handle is left");
  if (status != 0) printf("producer: the consumer failed (wait status %#x)\n", (unsigned)status);
  return status == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
  const int consuming = argc >= 3 && strcmp(argv[1], "--consumer") == 0;
  const int used = consuming ? 3 : 1;
  const char *library = argc > used ? argv[used] : NULL;
  worker w;

  setvbuf(stdout, NULL, _IOLBF, 0);
  memset(&w, 0, sizeof w);
  w.role = consuming ? "consumer" : "producer";
  w.cache = (unsigned char *)malloc(CACHE_LEN);
  if (w.cache == NULL) fail(&w, "start", "out of memory");
  if (consuming) return consumer(&w, library, (uint32_t)atoi(argv[2]));
  return producer(&w, library);
}
