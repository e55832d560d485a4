#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""P and D whose caches are cut differently: every answer must be equal to the aggregated one.

Unequal tensor-parallel sizes, a pipeline-parallel P, unequal block sizes; and stock on one side
where stock knows the case.

usage: geometry.py [--only WORD] [--smoke]
Exit status 1 on any difference.
"""
import argparse
import dataclasses

from harness.client import Client, aggregated, fault, make_prompt
from harness.engine import STOCK, Options
from harness.machine import Machine, default_python, fail
from harness.pair import Pair
from harness.table import Table, ms

LENGTHS = (1, 16, 33, 64, 100, 500, 1000, 2500)
SHARED = 700  # tokens of a prefix that D has cached
CASES = {
    "P TP 2, D TP 1": (Options(tensor_parallel=2), Options()),
    "P TP 1, D TP 2": (Options(), Options(tensor_parallel=2)),
    "P PP 2, D PP 1": (Options(pipeline_parallel=2), Options()),
    "P blocks of 32, D of 64": (Options(arguments=["--block-size", "32"]), Options(arguments=["--block-size", "64"])),
    "P blocks of 64, D of 32": (Options(arguments=["--block-size", "64"]), Options(arguments=["--block-size", "32"])),
    "P TP 2, D TP 1, P stock": (Options(STOCK, tensor_parallel=2), Options()),
    "P TP 2, D TP 1, D stock": (Options(tensor_parallel=2), Options(STOCK)),
    "P TP 1, D TP 2, P stock": (Options(STOCK), Options(tensor_parallel=2)),
    "P TP 1, D TP 2, D stock": (Options(), Options(STOCK, tensor_parallel=2)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--smoke", action="store_true", help="a few prompts only")
    options = parser.parse_args()
    machine = Machine(default_python())
    print(machine.describe(), flush=True)
    lengths = (33, 500) if options.smoke else LENGTHS
    bad, count = [], 0
    for title, (p, d) in CASES.items():
        if options.only not in title:
            continue
        count += 1
        d = dataclasses.replace(d, prefix_caching=True)
        with Pair(machine, p, d, title) as pair:
            bad += [f"{title}: {text}" for text in exchange(pair, lengths)]
    if not count:
        fail(f"no case has {options.only!r} in its name; there are: {', '.join(CASES)}")
    if bad:
        fail("\n  ".join(["not all answers are equal:"] + bad))
    print(f"{count} pairs: every answer is equal, token by token")


def exchange(pair, lengths):
    """Prompts of all lengths, then one whose beginning D has. Returns what went wrong."""
    wrong = []
    table = Table(("prompt", 6), ("seconds", 7), ("TTFT ms", 8), ("answer", 5))
    prompts = [make_prompt(length, f"{pair.title} {length}") for length in lengths]
    shared = make_prompt(SHARED, pair.title)
    prompts += [shared + make_prompt(tail, f"{pair.title} {tail}") for tail in (50, 170)]
    with Client(pair) as client:
        for prompt in prompts:
            alone = aggregated(pair.p, prompt)
            p, d = client.push(prompt)
            text = fault(alone, p, d)
            table.row(len(prompt), f"{max(p.seconds, d.seconds):.2f}", ms(d.ttft), text or "equal")
            if text:
                wrong.append(f"{len(prompt)} tokens: {text}")
    return wrong


if __name__ == "__main__":
    main()
