#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Look for stalls of a pair: prompts of many lengths, in each order of the legs.

Each prompt is pushed three times: both legs at once, D 0.3 s first, P 0.4 s first. A push that
has not ended after --timeout seconds counts as stuck. See docs/stock-stall.md for what was found.

usage: stall.py [--connector stock|ours] [--rounds N] [--timeout S] [--env NAME=VALUE ...]
"""
import argparse
import pathlib
import subprocess
import time

from harness.client import Client, aggregated, difference, make_prompt
from harness.engine import Options
from harness.machine import Machine, default_python
from harness.pair import Pair

LENGTHS = (1, 5, 16, 17, 100, 250, 500, 1000, 2000, 4000, 6000, 8000)
ORDERS = {"both": {}, "D first": {"p_after": 0.3}, "P first": {"d_after": 0.4}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--connector", default="stock")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--timeout", type=float, default=25)
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE for both engines")
    parser.add_argument("--own-session", action="store_true", help="setsid for each engine")
    parser.add_argument("--on-stall", help="shell command, run once with P's and D's worker pid as $1 $2")
    options = parser.parse_args()
    environment = dict(pair.split("=", 1) for pair in options.env)
    side = Options(options.connector, environment=environment, own_session=options.own_session)
    with Pair(Machine(default_python()), side, side, f"stall {options.connector}") as pair:
        return hunt(pair, options)


def hunt(pair, options):
    pushes = stuck = different = 0
    with Client(pair) as client:
        for seed in range(options.rounds):
            for length in options.lengths:
                prompt = make_prompt(length, seed)
                want = aggregated(pair.p, prompt, 8)  # not D: its blocks would hold the right KV before the push
                for order, delays in ORDERS.items():
                    began = time.monotonic()
                    p, d = client.push(prompt, 8, timeout=options.timeout, **delays)
                    passed = time.monotonic() - began
                    pushes += 1
                    if p.ok and d.ok:
                        different += bool(difference(want, d))
                        verdict = difference(want, d) or "equal"
                    else:
                        stuck += 1
                        verdict = f"STUCK P: {p.error or 'ok'} D: {d.error or 'ok'}"
                        if options.on_stall:
                            look(pair, options.on_stall)
                            options.on_stall = None
                    print(f"{time.strftime('%H:%M:%S')} {length:5} {order:8} {passed:6.2f} s "
                          f"P {p.seconds:6.2f} {verdict}", flush=True)
    print(f"{pushes} pushes, {stuck} stuck, {different} different")
    for engine in (pair.p, pair.d):
        for name, ran, waited in busy_threads(engine.worker_pid()):
            print(f"{engine.name} worker, {name}: ran {ran:.1f} s, waited for a core {waited:.1f} s")
    return 1 if different else 0


def busy_threads(pid):
    """(name, seconds run, seconds runnable but waiting) of each thread that ran over a second."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        ran, waited, _ = (int(word) for word in (task / "schedstat").read_text().split())
        if ran > 2e9:
            name = "main thread" if task.name == str(pid) else f"thread {task.name}"
            yield name, ran / 1e9, waited / 1e9


def look(pair, command):
    subprocess.run(["bash", "-c", command, "look", str(pair.p.worker_pid()), str(pair.d.worker_pid())])


if __name__ == "__main__":
    raise SystemExit(main())
