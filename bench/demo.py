#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Push the KV cache of prompts from one vLLM engine to another and compare every token.

P and D are real engines with nixlpush's connector; D has prefix caching on, P has it off. Each
prompt goes to both at once, and D's answer is compared with what P says when it computes the
same prompt alone. A second prompt with the same beginning must then push only its tail.

usage: demo.py [--smoke]      (VLLM_PYTHON names the Python of the engines)
Exit status 1 on any difference.
"""
import argparse
import uuid

from harness.client import Client, aggregated, fault, make_prompt, sensitive_blocks
from harness.engine import Options
from harness.machine import Machine, default_python, fail
from harness.metrics import Watch, block_size
from harness.pair import Pair
from harness.table import Table, ms, size

LENGTHS = (16, 17, 100, 500, 1000, 2000, 4000)
REPEATS = 3
SHARED, TAIL = 3000, 300  # tokens of a prompt that D has cached already, and of its end
OBSERVED = "observed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a few prompts only")
    options = parser.parse_args()
    machine = Machine(default_python())
    print(f"{machine.describe()}: {machine.python}", flush=True)
    lengths, repeats = ((16, 500), 1) if options.smoke else (LENGTHS, REPEATS)

    with Pair(machine, Options(OBSERVED), Options(OBSERVED, prefix_caching=True), "demo") as pair:
        differences = plain(pair, lengths, repeats) + prefix_hits(pair)
    if differences:
        fail("answers differ:\n  " + "\n  ".join(differences))
    print("all answers are equal, token by token")


class Pusher:
    """Pushes a prompt, prints its row, keeps the differences."""

    def __init__(self, pair, client):
        self.pair, self.client = pair, client
        self.p, self.d = Watch(pair.p), Watch(pair.d)
        self.differences = []
        self.table = Table(
            ("prompt", 6), ("legs", 7), ("tokens equal", 5), ("pushed", 9), ("block pairs", 6),
            ("descriptors", 6), ("WRITE ms", 7), ("lag ms", 6), ("TTFT ms: pushed", 8),
            ("aggregated", 8))

    def push(self, prompt, legs="both"):
        """Returns P's line about the push, or None if the request failed."""
        alone = aggregated(self.pair.p, prompt)
        request_id = str(uuid.uuid4())
        held = alone.seconds + 0.3  # enough for the other leg to be done with the prompt
        delays = {"P first": {"d_after": held}, "D first": {"p_after": held}}.get(legs, {})
        p, d = self.client.push(prompt, request_id=request_id, **delays)
        wrong = fault(alone, p, d)
        if wrong:
            self.differences.append(f"prompt of {len(prompt)} tokens, {legs}: {wrong}")
        if not (p.ok and d.ok):
            self.table.row(len(prompt), legs, "failed", *["-"] * 7)
            return None
        sent, got = self.p.end_of(request_id), self.d.end_of(request_id)
        equal = sum(a == b for a, b in zip(alone.tokens, d.tokens))
        self.table.row(
            len(prompt), legs, f"{equal}/{len(alone.tokens)}", size(sent["bytes"]), sent["pairs"],
            sent["descriptors"], ms(sent["write_ns"] / 1e9), ms(max(0.0, got["taken"] - sent["signalled"])),
            ms(d.ttft - delays.get("p_after", 0)), ms(alone.ttft))
        return sent


def plain(pair, lengths, repeats):
    """Prompts of all lengths, legs in each order. Returns the differences."""
    check_model(pair.p)
    print("\nlag: from P seeing the end of its WRITE to D's engine taking the request on, by the clocks of\n"
          "Python threads (0.00: D was first).\n"
          "TTFT pushed: from the later leg to D's first token.\n")
    with Client(pair) as client:
        client.push(make_prompt(32, "warm-up"))
        pusher = Pusher(pair, client)
        for length in lengths:
            for repeat in range(repeats):
                pusher.push(make_prompt(length, f"{length} {repeat}"))
        for legs in ("D first", "P first"):
            pusher.push(make_prompt(500, legs), legs)
        stats = pusher.p.fresh_stats()
    offers, registrations = stats["offer_first"], stats["registration_first"]
    print(f"\nrendezvous: P had finished first {offers} times, D had registered first "
          f"{registrations} times")
    if not (offers and registrations):
        fail("one of the two orders of the rendezvous did not occur")
    return pusher.differences


def check_model(engine):
    """The comparison is worth something only if the answer depends on every block."""
    prompt = make_prompt(512, "sensitive")
    blocks = range(0, 32, 3)
    changed = sensitive_blocks(engine, prompt, blocks)
    print(f"a change of one block of a 512-token prompt changed the answer {changed} of {len(blocks)} times")
    if changed < len(blocks):
        fail("the model's answer does not depend on every block, so equal answers prove nothing")


def prefix_hits(pair):
    """A second prompt that shares its beginning. Returns the differences."""
    print(f"\na prefix that D has cached: {SHARED} tokens shared, {TAIL} of each prompt's own\n")
    shared = make_prompt(SHARED, "shared")
    with Client(pair) as client:
        pusher = Pusher(pair, client)
        whole, tail = (pusher.push(shared + make_prompt(TAIL, f"tail {i}")) for i in (1, 2))
    if not (whole and tail):
        return pusher.differences
    block = block_size(pair.d)
    blocks = -(-(SHARED + TAIL) // block)
    missing = blocks - SHARED // block
    print(f"\nthe second prompt pushed {size(tail['bytes'])} instead of {size(whole['bytes'])}: "
          f"{missing} of {blocks} blocks of {block} tokens were not in D's cache")
    if tail["bytes"] * blocks != whole["bytes"] * missing:
        fail("the second prompt pushed more or less than its tail")
    return pusher.differences


if __name__ == "__main__":
    main()
