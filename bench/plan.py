#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Planning a WRITE: nixlpush against what vLLM's push connector and NIXL do for the same blocks.

nixlpush turns block ids into merged descriptors in Go. vLLM computes an id per block and layer
with NumPy and lets NIXL pick those from lists of all blocks that it prepared before (makeXferReq).
The second table adds lists of descriptors, the third what nixlpush still has to do then: createXferReq.

usage: plan.py [--rounds 7]      (VLLM_PYTHON: an environment with vLLM and NIXL)
Both take turns. Prints three tables; the figures also go to build/out/plan.json.
"""
import argparse
import json
import mmap
import os
import random
import re
import subprocess
import sys
import time

from harness.machine import OUT, ROOT, Machine, default_python
from harness.table import Table, median

LAYERS, HEADS, ELEMENT = 64, 8, 32  # bytes of K and V of one head and token
BLOCKS = 8192
RESULT = re.compile(r"^Benchmark\w+/(\S+?)/(plan|expanded|request)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op.*?([\d.]+) copies", re.M)


def cases():
    """What to plan: the two sides and their block ids."""
    shuffle = random.Random(1)

    def scattered(count, first=0):
        return shuffle.sample(range(first, BLOCKS), count)

    whole = {"tokens": 16, "blocks": BLOCKS, "first": 0, "heads": HEADS}
    up, down = list(range(1000, 2024)), list(range(2023, 999, -1))
    half = up[:512] + scattered(512, 2024)
    return [
        case("contiguous", whole, whole, up, up),
        case("descending", whole, whole, down, down),
        case("half in one run", whole, whole, half, up[:512] + scattered(512, 2024)),
        case("scattered", whole, whole, scattered(1024), scattered(1024)),
        case("scattered, 2,048 blocks", whole, whole, scattered(2048), scattered(2048)),
        case("2 of 8 heads", {**whole, "blocks": 2048, "heads": 4},
             {**whole, "blocks": 2048, "first": 2, "heads": 6}, up, up),
        case("16 to 64 tokens", {**whole, "blocks": 2048},
             {**whole, "tokens": 64, "blocks": 512}, up, up[:256]),
    ]


def case(name, source, target, source_ids, target_ids):
    tokens = source["tokens"] * len(source_ids)
    target_ids = [i % target["blocks"] for i in target_ids]
    return {"name": name.replace(" ", "_"), "source": source, "target": target,
            "source_ids": source_ids, "target_ids": target_ids, "tokens": tokens}


class Stock:
    """vLLM's way, with NIXL's Python binding."""

    def __init__(self):
        import numpy
        from nixl._api import nixl_agent, nixl_agent_config

        self.numpy = numpy
        config = nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self.agent, self.peer = nixl_agent("source", config), nixl_agent("target", config)
        self.memory = {side: self._map(agent) for side, agent in
                       (("source", self.agent), ("target", self.peer))}
        self.remote = self.agent.add_remote_agent(self.peer.get_agent_metadata())

    def _map(self, agent):
        """Memory that nothing is written to: only its addresses count here."""
        size = LAYERS * BLOCKS * 16 * HEADS * ELEMENT
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = self.numpy.frombuffer(memory, self.numpy.uint8)
        agent.register_memory(agent.get_reg_descs([(whole.ctypes.data, size, 0, "")], "DRAM"))
        return whole

    def prepare(self, one):
        """The lists of all pieces of blocks, and what a request does with them."""
        pieces = Pieces(self.numpy, one)
        sides = []
        for side, owner in (("source", "NIXL_INIT_AGENT"), ("target", self.remote)):
            rows = pieces.rows(one[side], self.memory[side].ctypes.data)
            sides.append(self.agent.prep_xfer_dlist(owner, self.agent.get_xfer_descs(rows, "DRAM")))
        return pieces, sides

    def plan(self, one, prepared):
        """Seconds to make one request."""
        pieces, (source, target) = prepared
        began = time.perf_counter()
        ours = pieces.ids(one["source"], one["source_ids"])
        theirs = pieces.ids(one["target"], one["target_ids"])
        handle = self.agent.make_prepped_xfer("WRITE", source, ours, target, theirs, b"done")
        took = time.perf_counter() - began
        self.agent.release_xfer_handle(handle)
        return took

    def release(self, prepared):
        for handle in prepared[1]:
            self.agent.release_dlist_handle(handle)


class Pieces:
    """How a block is cut so that both sides have equal pieces: whole, by heads, or by heads and
    tokens. (vLLM itself does not cut by tokens; this is what it would have to.)"""

    def __init__(self, numpy, one):
        source, target = one["source"], one["target"]
        self.numpy = numpy
        self.tokens = min(source["tokens"], target["tokens"])
        self.first = max(source["first"], target["first"])
        last = min(source["first"] + source["heads"], target["first"] + target["heads"])
        self.heads = last - self.first
        # Heads that follow one another on both sides go in one piece if tokens are not cut.
        self.per_piece = self.heads if source["tokens"] == target["tokens"] else 1

    def per_block(self, side):
        return side["tokens"] // self.tokens * (self.heads // self.per_piece)

    def rows(self, side, base):
        """(address, length, device) of every piece: by layer, block, cut of tokens, head."""
        np = self.numpy
        head = side["tokens"] * ELEMENT
        block = side["heads"] * head
        cuts, runs = side["tokens"] // self.tokens, self.heads // self.per_piece
        address = (base
                   + np.arange(LAYERS, dtype=np.uint64)[:, None, None, None] * np.uint64(side["blocks"] * block)
                   + np.arange(side["blocks"], dtype=np.uint64)[None, :, None, None] * np.uint64(block)
                   + np.arange(cuts, dtype=np.uint64)[None, None, :, None] * np.uint64(self.tokens * ELEMENT)
                   + (np.arange(runs, dtype=np.uint64) * np.uint64(self.per_piece * head)
                      + np.uint64((self.first - side["first"]) * head))[None, None, None, :]).ravel()
        rows = np.zeros((address.size, 3), np.uint64)
        rows[:, 0] = address
        rows[:, 1] = self.per_piece * self.tokens * ELEMENT
        return rows

    def ids(self, side, block_ids):
        """The ids of a request's pieces, layer by layer, as vLLM computes them."""
        np = self.numpy
        per = self.per_block(side)
        blocks = np.asarray(block_ids)
        if per > 1:
            blocks = (blocks[:, None] * per + np.arange(per)[None, :]).ravel()
        layers = np.arange(LAYERS) * (side["blocks"] * per)
        return (layers[:, None] + blocks[None, :]).ravel()


class Ours:
    """The Go benchmark of connector/, which plans as a writer thread does."""

    def __init__(self, python, file):
        self.program = OUT / "connector.test"
        subprocess.run(["go", "test", "-c", "-o", str(self.program), "./connector"], cwd=ROOT, check=True)
        purelib = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                                 check=True, capture_output=True, text=True).stdout.strip()
        self.environment = {**os.environ, "NIXLPUSH_NIXL_WHEEL_ROOT": purelib, "NIXLPUSH_REQUIRE_NIXL": "1"}
        self.file = file

    def run(self):
        """{(case, "plan", "expanded" or "request"): (seconds, copies)}"""
        done = subprocess.run(
            [str(self.program), "-test.run", "^$", "-test.bench", "^BenchmarkPrepare$", "-test.benchtime", "40x",
             "-cases", str(self.file)], cwd=ROOT / "connector", env=self.environment, check=True,
            capture_output=True, text=True)
        found = {(name, what): (float(ns) / 1e9, float(copies)) for name, what, ns, copies in RESULT.findall(done.stdout)}
        if not found:
            raise SystemExit(f"the benchmark printed no figures:\n{done.stdout}{done.stderr}")
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    python = default_python()
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(python))):
        os.execv(python, [python, *sys.argv])  # this program needs its NIXL and numpy
    os.environ.setdefault("UCX_TLS", "tcp,shm,self")
    print(Machine(python).describe(), flush=True)
    figures = measure(python, rounds)
    report(figures, rounds)
    sys.stdout.flush()
    os._exit(0)  # NIXL may crash a process without GPU at its exit


def measure(python, rounds):
    """{case: {"stock"|"plan"|"expanded"|"request": [seconds], "copies": n}}"""
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / "plan-cases.json"
    tasks = cases()
    file.write_text(json.dumps({"layers": LAYERS, "heads": HEADS, "element": ELEMENT, "cases": tasks}))
    ours, stock = Ours(python, file), Stock()
    figures = {one["name"]: {"stock": [], "plan": [], "expanded": [], "request": []} for one in tasks}
    for number in range(rounds):
        for (name, what), (seconds, copies) in ours.run().items():
            figures[name][what].append(seconds)
            figures[name]["copies"] = copies
        for one in tasks:
            prepared = stock.prepare(one)
            stock.plan(one, prepared)  # warm
            figures[one["name"]]["stock"].append(median([stock.plan(one, prepared) for _ in range(5)]))
            stock.release(prepared)
        print(f"  round {number + 1} of {rounds}", flush=True)
    return figures


def report(figures, rounds):
    for what, title in (("plan", "planning alone, against vLLM's ids and makeXferReq"),
                        ("expanded", "planning and lists of descriptors, against the same"),
                        ("request", "planning, lists and createXferReq, against the same")):
        print(f"\n{title}; medians of {rounds} rounds, us\n")
        table = Table(("blocks", 24), ("descriptors", 11), ("ours", 10), ("stock", 10), ("stock/ours", 10))
        for name, values in figures.items():
            ours, stock = median(values[what]) * 1e6, median(values["stock"]) * 1e6
            table.row(name.replace("_", " "), f"{values['copies']:.0f}", f"{ours:.1f}", f"{stock:.0f}", f"{stock / ours:.1f}")
    path = OUT / "plan.json"
    path.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"\nall values: {path}")


if __name__ == "__main__":
    main()
