#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pair under load, with clients that give up and a P that is killed: what becomes of everybody?

Some of the requests are broken off by their client at a random moment: the leg on D, the leg on P,
or both. P is killed with -9 and started again under the same address and engine id. Every answer
that comes must be the aggregated one, no request may outlive its deadline, every failure must have a
reason, and in the end nothing may be held.

usage: chaos.py [--requests 1000] [--parallel 16] [--kills 3] [--stock]
Exit status 1 if nixlpush breaks a rule; with --stock vLLM's own connector goes through the same
afterwards, is reported, and does not count.
"""
import argparse
import collections
import concurrent.futures
import random
import threading
import time
import uuid

from harness.client import Client, aggregated, difference, make_prompt
from harness.engine import STOCK, Options
from harness.machine import Machine, default_python, fail
from harness.metrics import Watch, rss_kib, wait_for_usage
from harness.pair import START_SECONDS, Pair
from harness.table import median

DEADLINE = 20  # seconds, of D
SLACK = 15  # seconds beyond it: the queue, and the fence of a WRITE that was announced
LONGEST = 1500  # tokens of a prompt
ABORTED = 0.2  # share of requests whose client gives up
PATIENCE = 1.5  # seconds, at most, of such a client
HELD = ("expects", "offers", "registrations", "writes", "events")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--stock", action="store_true", help="vLLM's own connector, too")
    options = parser.parse_args()
    machine = Machine(default_python())
    print(machine.describe(), flush=True)
    problems = chaos(machine, "observed", options)
    if options.stock:
        chaos(machine, STOCK, options)
    if problems:
        fail("\n  ".join(["chaos:"] + problems))
    print("every answer that came was right, nothing hung, nothing was left behind")


def chaos(machine, connector, options):
    """One run. Returns what went wrong."""
    side = Options(connector, extra={"push_registration_timeout": DEADLINE, "kv_lease_duration": DEADLINE})
    with Pair(machine, side, side, f"chaos, {connector}") as pair, Client(pair, options.parallel) as client:
        run = Run(pair, client, options)
        run.everything()
        return run.verdict()


class Run:
    def __init__(self, pair, client, options):
        self.pair, self.client, self.options = pair, client, options
        self.ours = pair.p.options.connector == "observed"
        self.up = threading.Event()  # P is there
        self.up.set()
        self.count = collections.Counter()
        self.problems, self.errors, self.durations = [], collections.Counter(), []
        self.lock = threading.Lock()

    def everything(self):
        parallel, total = self.options.parallel, self.options.requests
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            list(pool.map(lambda i: self.client.push(make_prompt(LONGEST, f"warm-up {i}")), range(parallel)))
            memory = rss_kib(self.pair.d.worker_pid())
            portion = -(-total // (self.options.kills + 1))
            for start in range(0, total, portion):
                futures = [pool.submit(self.one, i) for i in range(start, min(total, start + portion))]
                if start + portion < total:
                    wait_until_half_done(futures)
                    self.kill_p()
                concurrent.futures.wait(futures)
                print(f"  {start + len(futures)}/{total}: {dict(self.count)}", flush=True)
        for engine in (self.pair.p, self.pair.d):
            self.check_left(engine)
        print(f"  D's worker grew by {(rss_kib(self.pair.d.worker_pid()) - memory) / 1024:+.1f} MiB")

    def one(self, number):
        """One request of the traffic."""
        self.up.wait()
        dice = random.Random(f"chaos {number}")
        prompt = make_prompt(dice.randint(1, LONGEST), f"chaos {number}")
        gives_up = dice.random() < ABORTED
        legs = dice.choice(("p", "d", "pd")) if gives_up else ""
        limit = DEADLINE + SLACK
        patience = {leg: dice.uniform(0.01, PATIENCE) if leg in legs else limit for leg in "pd"}
        request_id = str(uuid.uuid4())
        p = self.client.submit(self.client.prefill_leg, prompt, request_id, patience["p"])
        d = self.client.submit(self.client.decode_leg, prompt, request_id, timeout=patience["d"])
        self.judge(prompt, legs, p.result(), d.result())

    def judge(self, prompt, legs, p, d):
        alone = aggregated(self.pair.d, prompt) if d.ok else None
        with self.lock:
            self.durations.append(d.seconds)
            if d.ok and (text := difference(alone, d)):
                self.problems.append(f"prompt of {len(prompt)} tokens: {text}")
            elif d.ok:
                self.count["equal"] += 1
            elif "d" in legs:
                self.count["broken off"] += 1
            elif "timed out" in d.error or "Timeout" in d.error:
                self.count["hung"] += 1
                self.problems.append(f"a leg on D hung for {d.seconds:.0f} s")
            else:
                self.count["failed, P's leg broken off" if legs else "failed, P was killed"] += 1
                self.errors[d.error[:60]] += 1

    def kill_p(self):
        """Kills P, starts it again and waits; requests to come wait, too."""
        self.up.clear()
        engine = self.pair.p
        engine.kill()
        print("  P is killed, and started again", flush=True)
        engine.start()
        began = time.monotonic()
        while not engine.healthy():
            if time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"P does not come back; see {engine.log}")
            time.sleep(0.5)
        self.up.set()

    def check_left(self, engine):
        """Nothing may be held once the last request is over."""
        empty, share = wait_for_usage(engine, 0.0, DEADLINE + SLACK)
        if not empty:
            self.problems.append(f"{engine.name} still uses {share:.1%} of its KV blocks")
        if not self.ours:
            return
        stats = Watch(engine).fresh_stats()
        print(f"  {engine.name}: sent {stats['sent']}, received {stats['received']}, failures "
              f"{ {name.removeprefix('failures: '): n for name, n in stats.items() if name.startswith('failures') and n} }")
        self.problems += [f"{engine.name} still holds {stats[key]} {key}" for key in HELD if stats[key]]

    def verdict(self):
        longest = max(self.durations)
        print(f"{self.pair.title}: {dict(self.count)}; legs on D took {median(self.durations):.2f} s, at most {longest:.1f} s")
        for error, count in self.errors.most_common(5):
            print(f"  {count} x {error}")
        if self.ours:
            self.problems += self.without_reason()
        return self.problems

    def without_reason(self):
        """Requests that failed on D and of which its log does not say why."""
        failed = sum(count for name, count in self.count.items() if name.startswith("failed"))
        log = self.pair.d.log.read_text(errors="replace")
        told = log.count("was not received")
        print(f"  {failed} requests failed on D; its log has {told} lines that say why one was not received")
        return [f"{failed} requests failed, and only {told} reasons are logged"] if told < failed else []


def wait_until_half_done(futures):
    while sum(future.done() for future in futures) < len(futures) // 2:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
