#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mix nixlpush with vLLM's own push connector: all answers must be equal to the aggregated ones.

First our P with a stock D, then a stock P with our D, then, as a control, stock with stock. What
fails in the control is reported and does not count. All engines run in this program's session
(see docs/stock-stall.md).

usage: interop.py [--smoke] [--no-control]
Exit status 1 on any difference or failure of a pair that has nixlpush in it.
"""
import argparse

from harness.client import Client, aggregated, fault, make_prompt
from harness.engine import OURS, STOCK, Options
from harness.machine import Machine, default_python, fail
from harness.pair import Pair
from harness.table import Table

LENGTHS = (1, 16, 17, 100, 500, 1000, 2000, 4000, 8000)
LEGS = ("both", "D first", "P first")
TIMEOUT = 60


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a few prompts only")
    parser.add_argument("--no-control", action="store_true", help="without stock to stock")
    options = parser.parse_args()
    machine = Machine(default_python())
    print(machine.describe(), flush=True)
    lengths = (16, 1000) if options.smoke else LENGTHS
    pairs = [(OURS, STOCK), (STOCK, OURS)] + ([] if options.no_control else [(STOCK, STOCK)])
    bad = []
    for p, d in pairs:
        title = f"P {p}, D {d}"
        with Pair(machine, Options(p), Options(d), title) as pair:
            wrong = [f"{title}: {text}" for text in exchange(pair, lengths)]
        print(f"{title}: {len(lengths) * len(LEGS) - len(wrong)} of {len(lengths) * len(LEGS)} equal\n")
        if OURS in (p, d):
            bad += wrong
    if bad:
        fail("\n  ".join(["not all answers are equal:"] + bad))
    print("every answer of a pair with nixlpush is equal, token by token")


def exchange(pair, lengths):
    """Pushes every prompt in each order of the legs. Returns what went wrong."""
    wrong = []
    table = Table(("prompt", 6), ("legs", 8), ("seconds", 7), ("answer", 5))
    with Client(pair) as client:
        for length in lengths:
            for legs in LEGS:
                prompt = make_prompt(length, f"{length} {legs}")
                alone = aggregated(pair.p, prompt)  # not D: its blocks would hold the right KV before the push
                held = alone.seconds + 0.2
                delays = {"P first": {"d_after": held}, "D first": {"p_after": held}}.get(legs, {})
                p, d = client.push(prompt, timeout=TIMEOUT, **delays)
                text = fault(alone, p, d)
                table.row(length, legs, f"{max(p.seconds, d.seconds):.2f}", text or "equal")
                if text:
                    wrong.append(f"{length} tokens, {legs}: {text}")
    return wrong


if __name__ == "__main__":
    main()
