#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Break things on purpose: what becomes of D's request and of its blocks?

  - a D leg whose P leg never comes
  - P killed with -9 while D waits
  - one block id changed on the way (connectors/corrupt.py): the comparison must notice

D's deadline (push_registration_timeout) is set to a few seconds. Stock vLLM goes through the first
two beside it; what it does is reported and does not count.

usage: faults.py [--no-stock]
Exit status 1 if nixlpush does not end the request in time, does not give its blocks back, or if
the comparison does not notice the changed block.
"""
import argparse
import time
import uuid

from harness.client import Client, aggregated, difference, make_prompt
from harness.engine import OURS, STOCK, Options
from harness.machine import Machine, default_python, fail
from harness.metrics import kv_usage, wait_for_usage
from harness.pair import Pair

DEADLINE = 5  # seconds, of D
SLACK = 15  # seconds more after which it counts as never
PROMPT = 1500


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--no-stock", action="store_true", help="only nixlpush")
    options = parser.parse_args()
    machine = Machine(default_python())
    print(machine.describe(), flush=True)
    problems = silence(machine, OURS)
    problems += corruption(machine)
    if not options.no_stock:
        silence(machine, STOCK)
    if problems:
        fail("\n  ".join(["faults:"] + problems))
    print("every request ended in time and gave its blocks back; the comparison notices a changed block")


def silence(machine, connector):
    """D waits for a P that says nothing, or has died. Returns what went wrong."""
    side = Options(connector, extra={"push_registration_timeout": DEADLINE})
    problems = []
    with Pair(machine, side, side, f"{connector}: P is silent or dead") as pair, Client(pair) as client:
        client.push(make_prompt(200, "warm-up"))  # so that the engines know each other
        problems += wait_in_vain(pair, client, "the P leg never comes", lambda: None)
        problems += wait_in_vain(pair, client, "P is killed with -9", pair.p.kill)
    return [f"{connector}: {text}" for text in problems]


def wait_in_vain(pair, client, what, accident):
    """Sends a D leg and lets the accident happen while it waits."""
    wait_for_usage(pair.d, 0.0, 30)
    before = kv_usage(pair.d)
    request_id = str(uuid.uuid4())
    leg = client.submit(client.decode_leg, make_prompt(PROMPT, what), request_id,
                              timeout=DEADLINE + SLACK)
    time.sleep(1)
    during = kv_usage(pair.d)
    accident()
    answer = leg.result()
    returned, after = wait_for_usage(pair.d, before, 10)
    print(f"  {what}: the request ended after {answer.seconds:.1f} s: {answer.error or 'with an answer'}")
    print(f"    KV blocks in use on D: {before:.2%} before, {during:.2%} while waiting, {after:.2%} after")
    reasons = [line for line in pair.d.log.read_text(errors="replace").splitlines()
               if request_id in line and "was not received" in line]
    print(f"    D's log: {reasons[-1].partition('] ')[2] if reasons else 'no reason'}", flush=True)
    problems = []
    if answer.ok or answer.seconds > DEADLINE + SLACK / 2:
        problems.append(f"{what}: the request did not fail at its deadline of {DEADLINE} s")
    if not during > before:
        problems.append(f"{what}: the request held no blocks, so this shows nothing")
    if not returned:
        problems.append(f"{what}: D did not get its blocks back")
    if not reasons:
        problems.append(f"{what}: D's log gives no reason")
    return problems


def corruption(machine):
    """One block id changed on the way. Returns a problem unless each push of it is noticed."""
    prompts = [make_prompt(PROMPT, f"corrupt {i}") for i in range(5)]
    with Pair(machine, Options("corrupt"), Options(OURS), "a changed block id") as pair:
        with Client(pair) as client:
            noticed = 0
            for prompt in prompts:
                alone = aggregated(pair.p, prompt)  # not D: its blocks would hold the right KV before the push
                _, d = client.push(prompt, request_id=f"changed-0-{uuid.uuid4()}")
                noticed += bool(difference(alone, d))
    print(f"  one block id changed: noticed {noticed} of {len(prompts)} times", flush=True)
    return [] if noticed == len(prompts) else ["a changed block id was not noticed each time"]


if __name__ == "__main__":
    main()
