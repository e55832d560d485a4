#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""P and D whose caches are cut differently: every answer must be equal to the aggregated one.

Unequal tensor-parallel sizes, a pipeline-parallel P, unequal block sizes, and models with
sliding windows, latents (MLA) or states (Mamba) in their cache; with stock on one side where it
knows the case. D has prefix caching on; the last two prompts of a pair share a beginning.

With our P, requests follow where one block id is changed on the way, in one group of layers
at a time. The comparison must notice, else equal answers prove nothing about that group.

usage: geometry.py [--only WORD] [--smoke] [--no-stock]
Exit status 1 on any difference, and if a changed block is not noticed.
"""
import argparse
import dataclasses
import time
import uuid

from harness.client import Client, aggregated, difference, fault, make_prompt
from harness.engine import STOCK, Options
from harness.machine import Machine, default_python, fail
from harness.metrics import scrape
from harness.pair import Pair
from harness.table import Table, ms

LENGTHS = (1, 16, 33, 64, 100, 500, 1000, 2500)
# Tokens that two prompts share, and of what follows. The first prompt ends where blocks of all
# sizes do, but for the token that D computes itself: all groups then have what a hit takes.
SHARED, TAILS = 768, (1, 170)
CHANGED, CHANGES = 600, 3  # tokens of a prompt with a changed block id; prompts per group
CHANGING = "corrupt"  # our connector, which changes block ids of requests whose id says so


@dataclasses.dataclass
class Case:
    """Our connector on both sides, unless `stock` names P or D."""

    p: dict  # what makes P's Options different, and D's
    d: dict
    model: str = "full"
    groups: int = 1  # of layers
    stock: str = ""

    def options(self):
        p = Options(**{"connector": STOCK if self.stock == "P" else CHANGING, **self.p})
        d = Options(**self.d, prefix_caching=True)
        return p, dataclasses.replace(d, connector=STOCK) if self.stock == "D" else d


def blocks_of(tokens):
    size = {"arguments": ["--block-size", str(tokens)]}
    return size | ({"connector": "blocks16"} if tokens % 32 else {})


TP = {"tensor_parallel": 2}
PP = {"pipeline_parallel": 2, "role": "kv_producer"}
WINDOW, LATENT, MAMBA = ("window", 2), ("latent", 1), ("mamba", 2)
CASES = {
    "P TP 2, D TP 1": Case(TP, {}),
    "P TP 1, D TP 2": Case({}, TP),
    "P PP 2, D PP 1": Case(PP, {}),
    "P blocks of 16, D of 32": Case(blocks_of(16), blocks_of(32)),
    "P blocks of 32, D of 16": Case(blocks_of(32), blocks_of(16)),
    "P blocks of 32, D of 64": Case(blocks_of(32), blocks_of(64)),
    "P blocks of 64, D of 32": Case(blocks_of(64), blocks_of(32)),
    "window": Case({}, {}, *WINDOW),
    "window, P TP 2": Case(TP, {}, *WINDOW),
    "window, P blocks of 32, D of 64": Case(blocks_of(32), blocks_of(64), *WINDOW),
    "MLA": Case({}, {}, *LATENT),
    "MLA, P TP 2": Case(TP, {}, *LATENT),
    "MLA, D TP 2": Case({}, TP, *LATENT),
    "Mamba": Case({}, {}, *MAMBA),
    "Mamba, P TP 2": Case(TP, {}, *MAMBA),
}
# Unequal block sizes do not work with stock; the other cases above would say nothing new.
WITH_STOCK = (
    "P TP 2, D TP 1", "P TP 1, D TP 2", "P PP 2, D PP 1",
    "window", "MLA", "MLA, P TP 2", "Mamba")
CASES |= {
    f"{title}, {side} stock": dataclasses.replace(CASES[title], stock=side)
    for title in WITH_STOCK for side in ("P", "D")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="this case, or those with this in their name")
    parser.add_argument("--smoke", action="store_true", help="a few prompts only")
    parser.add_argument("--no-stock", action="store_true", help="only our connector")
    options = parser.parse_args()
    cases = chosen(options.only, options.no_stock)
    machine = Machine(default_python())
    print(machine.describe(), flush=True)
    lengths = (33, 500) if options.smoke else LENGTHS
    results, bad = {}, []
    for number, (title, case) in enumerate(cases.items(), 1):
        print(f"\n[{number} of {len(cases)}] {title}", flush=True)
        results[title], wrong = run(machine, title, case, lengths)
        bad += [f"{title}: {text}" for text in wrong]
    print()
    for title, result in results.items():
        print(f"{title:42} {result}")
    if bad:
        fail("\n  ".join(["not as it must be:"] + bad))
    print(f"{len(cases)} pairs: every answer is equal, token by token")


def chosen(word, no_stock):
    cases = {title: case for title, case in CASES.items() if not (no_stock and case.stock)}
    some = {title: case for title, case in cases.items() if word in title}
    if not some:
        fail(f"no case has {word!r} in its name; there are: {'; '.join(cases)}")
    return {word: some[word]} if word in some else some


def run(machine, title, case, lengths):
    """One pair. Returns a line about it, and what went wrong."""
    began = time.monotonic()
    try:
        with Pair(machine, *case.options(), title, case.model) as pair, Client(pair) as client:
            count, wrong = exchange(pair, client, lengths)
            hits = scrape(pair.d)["vllm:prefix_cache_hits_total"]
            result = f"{count - len(wrong)} of {count} equal, {hits:.0f} tokens were cached"
            if case.stock != "P":
                made, missed = changes(pair, client, case.groups)
                result += f", {made - len(missed)} of {made} changes noticed"
                wrong += missed
    except (RuntimeError, OSError) as error:
        return "failed", [str(error)]
    return f"{result}, {time.monotonic() - began:.0f} s", wrong


def exchange(pair, client, lengths):
    """Prompts of all lengths, then two with the same beginning. Returns their number, and what
    went wrong."""
    wrong = []
    table = Table(("prompt", 6), ("seconds", 7), ("TTFT ms", 8), ("answer", 5))
    prompts = [make_prompt(length, f"{pair.title} {length}") for length in lengths]
    shared = make_prompt(SHARED, pair.title)
    prompts += [shared + make_prompt(tail, f"{pair.title} {tail}") for tail in TAILS]
    for prompt in prompts:
        alone = aggregated(pair.p, prompt)
        p, d = client.push(prompt)
        text = fault(alone, p, d)
        table.row(len(prompt), f"{max(p.seconds, d.seconds):.2f}", ms(d.ttft), text or "equal")
        if text:
            wrong.append(f"{len(prompt)} tokens: {text}")
    return len(prompts), wrong


def changes(pair, client, groups):
    """Requests where P offers a wrong block. Returns their number, and what was not noticed."""
    missed = []
    for group in range(groups):
        for i in range(CHANGES):
            prompt = make_prompt(CHANGED, f"{pair.title} changed {group} {i}")
            alone = aggregated(pair.p, prompt)
            _, d = client.push(prompt, request_id=f"changed-{group}-{uuid.uuid4()}")
            if not difference(alone, d):
                missed.append(f"a changed block of group {group} went unnoticed")
            elif not d.ok:
                missed.append(f"a changed block of group {group}: {d.error}")
    made = groups * CHANGES
    print(f"one block id changed: noticed {made - len(missed)} of {made} times", flush=True)
    return made, missed


if __name__ == "__main__":
    main()
