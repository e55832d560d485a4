#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many requests at a time through a pair: all answers equal, and nothing left behind.

usage: soak.py [--requests 500] [--parallel 32]
Exit status 1 on a difference, on anything that is still held at the end, and if the memory of a
worker grows over the second half.
"""
import argparse
import collections
import concurrent.futures
import random
import time

from harness.client import Client, aggregated, fault, make_prompt
from harness.engine import Options
from harness.machine import Machine, default_python, fail
from harness.metrics import Watch, fd_count, rss_kib, wait_for_usage
from harness.pair import Pair

LONGEST = 3000  # tokens of a prompt
# KV blocks of each engine: so few that the warm-up touches all of them, and what grows afterwards
# is not the cache.
BLOCKS, BLOCK_TOKENS = 512, 128
# PyTorch keeps a compiled kernel for each batch shape it has seen, and glibc a heap per thread.
# glibc also takes larger and larger blocks from its heap instead of mapping them, until the
# activations of the model leave holes there that never go back to the system.
STEADY = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16", "MALLOC_ARENA_MAX": "1",
          "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
HELD = ("expects", "offers", "registrations", "writes", "events")
# Of a worker over the second half: what an allocator may still add to its pools.
GROWTH_KIB = 4096
PORTIONS = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=32)
    parser.add_argument("--connector", default="observed")
    options = parser.parse_args()
    machine = Machine(default_python())
    print(machine.describe(), flush=True)
    cache = ["--num-gpu-blocks-override", str(BLOCKS), "--block-size", str(BLOCK_TOKENS)]
    side = Options(options.connector, arguments=cache, environment=STEADY)
    with Pair(machine, side, side, "soak") as pair:
        problems = soak(pair, options.requests, options.parallel)
    if problems:
        fail("\n  ".join(["soak:"] + problems))
    print(f"{options.requests} requests, {options.parallel} at a time: all equal, nothing left behind")


def soak(pair, requests, parallel):
    sides = [Side(pair.p), Side(pair.d)]
    with Client(pair, parallel) as client:
        warm_up(client, parallel)
        for side in sides:
            side.before()
        wrong = exchange(pair, client, requests, parallel, sides)
    return wrong + [text for side in sides for text in side.after()]


def warm_up(client, parallel):
    """Threads, buffers and pools come into being, and every KV block is used once."""
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        list(pool.map(lambda i: client.push(make_prompt(2000, f"warm-up {i}")), range(2 * parallel)))


def exchange(pair, client, requests, parallel, sides):
    """Sends the requests in ten portions; between them, with nothing in flight, it looks at
    memory. Returns the differences."""
    lengths = random.Random("soak")
    prompts = [make_prompt(lengths.randint(1, LONGEST), f"soak {i}") for i in range(requests)]

    def one(prompt):
        alone = aggregated(pair.p, prompt)  # not D: its blocks would hold the right KV before the push
        p, d = client.push(prompt)
        return fault(alone, p, d)

    began = time.monotonic()
    wrong = []
    portion = -(-requests // PORTIONS)
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        for start in range(0, requests, portion):
            part = prompts[start:start + portion]
            for prompt, text in zip(part, pool.map(one, part)):
                if text:
                    wrong.append(f"prompt of {len(prompt)} tokens: {text}")
            memory = ", ".join(f"{side.engine.name} {side.look() / 1024:.1f} MiB" for side in sides)
            print(f"  {start + len(part)}/{requests} after {time.monotonic() - began:.0f} s, {len(wrong)} "
                  f"different; memory of the workers: {memory}", flush=True)
    return wrong


class Side:
    """What one engine's worker holds, before and after."""

    def __init__(self, engine):
        self.engine = engine
        self.watch = Watch(engine)
        self.pid = engine.worker_pid()
        self.memory = []

    def look(self):
        self._settle()
        self.memory.append(rss_kib(self.pid))
        return self.memory[-1]

    def before(self):
        self._settle()
        self.stats, self.fds = self._stats(), fd_count(self.pid)

    def after(self):
        """What is wrong at the end."""
        name = self.engine.name
        problems = self._settle()
        stats, fds = self._stats(), fd_count(self.pid)
        held = {key: stats[key] for key in HELD}
        goroutines = self.stats["goroutines"], stats["goroutines"]
        half = self.memory[len(self.memory) // 2:]
        growth = half[-1] - half[0]
        print(f"{name}: held {held}; goroutines {goroutines[0]} -> {goroutines[1]}, fds {self.fds} -> {fds}, "
              f"memory over the second half {growth:+.0f} KiB; sent {stats['sent']}, received "
              f"{stats['received']}, failed {stats['send_failed'] + stats['receive_failed']}, "
              f"offer first {stats['offer_first']}, registration first {stats['registration_first']}; "
              f"Go heap {self.stats['heap_bytes'] >> 10} -> {stats['heap_bytes'] >> 10} KiB, malloc "
              f"{self.stats['malloc_bytes'] >> 10} -> {stats['malloc_bytes'] >> 10} KiB", flush=True)
        problems += [f"{name} still holds {count} {key}" for key, count in held.items() if count]
        if goroutines[1] > goroutines[0]:
            problems.append(f"{name}: {goroutines[1] - goroutines[0]} goroutines more than before")
        if fds > self.fds:
            problems.append(f"{name}: {fds - self.fds} file descriptors more than before")
        if growth > GROWTH_KIB:
            problems.append(f"{name}: memory grew by {growth:.0f} KiB over the second half")
        return problems

    def _stats(self):
        """The engine's counters; zeros for a connector that has none."""
        if self.engine.options.connector == "observed":
            return self.watch.fresh_stats()
        return collections.Counter()

    def _settle(self):
        """Waits until nothing runs. Returns what still does."""
        empty, share = wait_for_usage(self.engine, 0.0, 60)
        return [] if empty else [f"{self.engine.name} still uses {share:.1%} of its KV blocks"]


if __name__ == "__main__":
    main()
