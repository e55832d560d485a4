#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nixlpush against vLLM's own push connector: what a transfer costs the engines.

Each connector has a P and a D process with vLLM's real scheduler and block manager, the real
connector and real NIXL, but no model: a step sleeps, or runs a fixed piece of Python, where the
model would run. Runs are interleaved: while one pair works, the other one is frozen (SIGSTOP).
A request has 16,384 tokens: 1,024 blocks of 16 tokens in 64 layers, 2 KiB each.

usage: bench.py [--rounds 9]      (VLLM_PYTHON: an environment with vLLM for CPUs)
Prints a table; the figures also go to build/out/bench.json.
"""
import argparse
import datetime
import json
import os
import sys
import time

from harness.lab import CONNECTORS, Duo, Lab
from harness.machine import OUT, Machine, default_python
from harness.table import Table, median

TOKENS = 16384
CONTACT_TOKENS = 4096
STEP = 0.2  # seconds of a busy step
WORK = 2_000_000  # turns of the fixed piece of Python
CHURN = 30  # requests of traffic before each round
PART = "    of it "
QUIET = 5  # seconds over which idle CPU time is taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    python = default_python()
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(python))):
        os.execv(python, [python, *sys.argv])  # this program needs its numpy
    machine = Machine(python)
    print(f"{machine.describe()}, {rounds} rounds", flush=True)
    if machine.gpus:
        raise SystemExit("bench.py needs vLLM for CPUs: make bench without VLLM_PYTHON installs it")
    with Lab(machine) as lab:
        figures = measure(lab, rounds)
    report(figures, machine, rounds)


def measure(lab, rounds):
    """{figure: {connector: [values]}}"""
    figures = Figures()
    duos = []
    for connector in CONNECTORS:
        print(f"starting P and D: {connector}", flush=True)
        duo = Duo(lab, connector)
        duo.open()
        duos.append(duo)
        duo.freeze()
    def turns(what, times, run):
        for number in range(times):
            for duo in duos:
                duo.thaw()
                run(duo, number)
                duo.freeze()
                print(f"  {what} {number + 1} of {times}: {duo.connector}", flush=True)

    turns("warm-up", 2, lambda duo, _: transfer(duo))
    turns("falling block ids", 3, lambda duo, _: descending(duo, figures))
    turns("mixed block ids", rounds, lambda duo, number: mixed(duo, figures, number))
    turns("first contact", rounds // 2 + 1, lambda duo, _: first_contact(duo, figures))
    turns("idle", 1, lambda duo, _: idle(duo, figures))
    return figures


class Figures(dict):
    def add(self, name, connector, value):
        if value is not None:
            self.setdefault(name, {}).setdefault(connector, []).append(value)


def descending(duo, figures):
    """Free lists as one long request leaves them: both in falling order."""
    duo.p.call("occupy_and_free", tokens=TOKENS)
    duo.d.call("occupy_and_free", tokens=TOKENS)
    push, _, _ = transfer(duo)
    figures.add("falling block ids: descriptors", duo.connector, push["descriptors"])
    figures.add("falling block ids: second event to WRITE posted, ms", duo.connector,
                push["posted"] * 1e3)


def mixed(duo, figures, number):
    """Free lists as mixed traffic leaves them."""
    def add(name, value):
        figures.add(name, duo.connector, value)

    duo.p.call("churn", seed=2 * number, requests=CHURN)
    duo.d.call("churn", seed=2 * number + 1, requests=CHURN)
    push, receive, landed = transfer(duo, ("sleep", STEP))
    add("mixed block ids: descriptors", push["descriptors"])
    add("mixed block ids: second event to WRITE posted, ms", push["posted"] * 1e3)
    add("last byte landed to D's engine, P in a step, ms", (receive["received"] - landed) * 1e3)
    add("engine thread in the connector, us", push["connector"] * 1e6)
    for name, seconds in push["seconds"].items():
        add(f"{PART}{name}", seconds * 1e6)

    empty = duo.p.call("empty_steps", count=5, forward=("python", WORK))
    push, _, _ = transfer(duo, ("python", WORK))
    blocked = push["forward"]["blocked"] - median(empty["blocked"])
    add("engine thread waiting for the GIL, us", blocked * 1e6)
    add("engine thread, both together, us", (push["connector"] + blocked) * 1e6)
    add("connector in a step without requests, us", empty["connector"] * 1e6)


def transfer(duo, forward=None):
    """D registers, then P prefills and pushes. Returns (P's result, D's, when the last byte was
    there)."""
    p_id, d_id = duo.next_id()
    p_leg, d_leg = duo.params(p_id)
    duo.d.send("receive", request_id=d_id, tokens=TOKENS, params=d_leg)
    blocks = duo.d.answer()
    time.sleep(0.1)  # the registration is on its way
    duo.p.send("push", request_id=p_id, tokens=TOKENS, params=p_leg, forward=forward)
    landed = duo.landing.wait(blocks)
    return duo.p.answer(), duo.d.answer(), landed


def first_contact(duo, figures):
    """New engines; P holds finished blocks when D registers; both run Python without a pause."""
    duo.open()
    p_id, d_id = duo.next_id()
    p_leg, d_leg = duo.params(p_id)
    duo.p.send("push", request_id=p_id, tokens=CONTACT_TOKENS, params=p_leg, forward=("busy", 3.0))
    time.sleep(0.5)
    duo.d.send("receive", request_id=d_id, tokens=CONTACT_TOKENS, params=d_leg,
               forward=("busy", 2.0))
    blocks = duo.d.answer()
    landed = duo.landing.wait(blocks)
    duo.p.answer()
    figures.add(f"first contact, engines busy, {CONTACT_TOKENS} tokens, ms", duo.connector,
                (landed - duo.d.answer()["began"]) * 1e3)


def idle(duo, figures):
    """CPU time of the connectors' threads while the engine threads sleep, as a share of a core."""
    shares(duo, figures, "idle")
    p_id, d_id = duo.next_id()
    p_leg, d_leg = duo.params(p_id)
    duo.d.call("expect", request_id=d_id, tokens=TOKENS, params=d_leg)
    shares(duo, figures, "D waits", sides="D")
    duo.p.call("push", request_id=p_id, tokens=TOKENS, params=p_leg)
    duo.d.call("await_expected", request_id=d_id)

    p_id, d_id = duo.next_id()
    p_leg, d_leg = duo.params(p_id)
    duo.p.call("push", request_id=p_id, tokens=TOKENS, params=p_leg, wait=False)
    shares(duo, figures, "P waits", sides="P")
    duo.d.call("expect", request_id=d_id, tokens=TOKENS, params=d_leg)
    duo.p.call("await_sent", request_id=p_id)
    duo.d.call("await_expected", request_id=d_id)


def shares(duo, figures, what, sides="PD"):
    processes = [side for side in (duo.p, duo.d) if side.side in sides]
    time.sleep(0.5)
    before = [process.call("cpu") for process in processes]
    time.sleep(QUIET)
    for process, ran in zip(processes, before, strict=True):
        share = (process.call("cpu") - ran) / QUIET * 100
        figures.add(f"CPU of the connector, {process.side}: {what}, % of a core", duo.connector, share)


def report(figures, machine, rounds):
    print(f"\nmedians of {rounds} interleaved rounds; in brackets the lowest and the highest\n")
    table = Table(("figure", 56), ("ours", 24), ("stock", 24), ("ours/stock", 10))
    for name, values in figures.items():
        ours, stock = (values.get(connector, []) for connector in CONNECTORS)
        if name.startswith(PART) and max(map(median, filter(None, (ours, stock)))) < 5:
            continue  # the rest is noise
        ratio = median(ours) / median(stock) if ours and stock and median(stock) else None
        table.row(name, spread(ours), spread(stock), "-" if ratio is None else f"{ratio:.4f}")
    path = OUT / "bench.json"
    path.write_text(json.dumps({
        "when": datetime.datetime.now().isoformat(timespec="seconds"),
        "machine": machine.describe(), "rounds": rounds, "figures": figures}, indent=1) + "\n")
    print(f"\nall values: {path}")


def spread(values):
    if not values:
        return "-"
    return f"{median(values):.4g} ({min(values):.4g} - {max(values):.4g})"


if __name__ == "__main__":
    main()
