# SPDX-License-Identifier: Apache-2.0
"""A process with one lab engine that does what its parent tells it.

usage: python -m lab.child SOCKET     (then `harness.lab` sends (command, arguments))
"""
import multiprocessing.connection
import os
import pathlib
import random
import sys
import time
import traceback

from lab import config, posted
from lab.engine import Engine


class Child:
    def __init__(self, connection):
        self.connection = connection
        self.engine = None
        self.caches = None

    # ---- Commands ----

    def open(self, folder, side, transfer, side_port, prefix_caching):
        """A new engine, over the same cache memory if there was one before."""
        if self.engine:
            self.engine.shutdown()
        os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] = "127.0.0.1"
        os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(side_port)
        vllm = config.vllm_config(f"{folder}/model", transfer, prefix_caching)
        if self.caches is None:
            config.join_group_of_one(vllm)
            self.caches = config.cache_memory(f"{folder}/cache-{os.getpid()}")
            self.others = set(_threads())
            self.path = f"{folder}/cache-{os.getpid()}"
        if side == "P":
            for layer in self.caches.values():
                layer.fill_(1)
        self.engine = Engine(vllm, config.cache_config(), self.caches)
        self.posted = posted.watch(self.engine.worker, lambda: self.engine.step_began)
        return {"cache": self.path, "layers": config.LAYERS, "blocks": config.BLOCKS,
                "page": config.PAGE}

    def churn(self, seed, requests):
        self.engine.churn(random.Random(seed), requests)

    def occupy_and_free(self, tokens):
        """One request takes the whole prompt's blocks in order and gives them back in reverse."""
        self.engine.add("occupy", tokens, None)
        self.engine.settle()

    def empty_steps(self, count, forward):
        """Steps without requests: the engine thread's time in the connector, and the forward's."""
        engine, loops = self.engine, []
        engine.timed.reset()
        for _ in range(count):
            engine.step(lambda: loops.append(_run(forward)))
        return {"connector": engine.timed.total() / count,
                "blocked": [loop["blocked"] for loop in loops]}

    def receive(self, request_id, tokens, params, forward=None):
        """D: sends the ids of its blocks at once, and the result when the KV has arrived."""
        engine = self.engine
        self._clear()
        engine.add(request_id, tokens, params, seed=tokens)
        first = (lambda: self._tell_blocks(request_id), lambda: _run(forward))
        engine.step(lambda: [call() for call in first])
        began = engine.step_began
        engine.run_until(lambda: request_id in engine.received)
        received = engine.received.pop(request_id)
        engine.settle()
        return {"began": began, "received": received, "failed": request_id in engine.failed}

    def expect(self, request_id, tokens, params):
        """D: registers and does not step on."""
        self.engine.add(request_id, tokens, params, seed=tokens)
        self.engine.step()

    def await_expected(self, request_id):
        engine = self.engine
        engine.run_until(lambda: request_id in engine.received)
        engine.settle()

    def push(self, request_id, tokens, params, forward=None, wait=True):
        """P: computes the prompt, then the step that carries the finished request, then steps
        until it is sent. Empty steps come first, so that this is an engine that runs."""
        engine, loops = self.engine, []
        for _ in range(50):
            engine.step()
        engine.add(request_id, tokens, params, seed=tokens)
        engine.timed.reset()
        engine.step()
        seconds = {name: engine.timed.seconds.get(name, 0.0)
                   for name in ("request_finished", "request_finished_all_groups")}
        engine.timed.reset()
        self.posted.clear()
        engine.step(lambda: loops.append(_run(forward)))
        seconds.update(engine.timed.seconds)
        result = {"seconds": seconds, "connector": sum(seconds.values()), "forward": loops[0]}
        if wait:
            result.update(self.await_sent(request_id))
        return result

    def await_sent(self, request_id):
        engine = self.engine
        engine.run_until(lambda: request_id in engine.sent)
        transfer = engine.transfers.pop() if engine.transfers else {}
        engine.settle()
        return {"posted": self.posted[-1] if self.posted else None,
                "descriptors": sum(transfer.get("num_descriptors", [])),
                "bytes": sum(transfer.get("bytes_transferred", []))}

    def cpu(self):
        """CPU seconds so far of the threads that came with the engine and its connector. PyTorch
        and vLLM have threads of their own, with or without one."""
        return sum(ran for thread, ran in _threads().items() if thread not in self.others)

    def close(self):
        if self.engine:
            self.engine.shutdown()

    # ---- Parts ----

    def _clear(self):
        """D: the last word of every page to zero: the parent watches these."""
        for layer in self.caches.values():
            layer.view(config.BLOCKS, -1)[:, -4:] = 0

    def _tell_blocks(self, request_id):
        manager = self.engine.scheduler.kv_cache_manager
        self.connection.send(("blocks", manager.get_block_ids(request_id)[0]))


def _run(forward):
    """What stands in for the model: ("sleep", s) leaves the GIL alone, as waiting for a GPU does;
    ("python", n) is a fixed amount of Python, ("busy", s) Python for a time.

    Returns seconds that it took, and of those the seconds in which the thread was neither on a
    core nor waiting for one: it waited for the GIL (or slept, if that is what it does).
    """
    kind, amount = forward or ("sleep", 0)
    began, ran, queued = time.perf_counter(), time.thread_time(), _thread_times("thread-self")[1]
    if kind == "sleep":
        time.sleep(amount)
    elif kind == "python":
        total = 0
        for i in range(int(amount)):
            total += i
    else:
        while time.perf_counter() < began + amount:
            pass
    took, ran = time.perf_counter() - began, time.thread_time() - ran
    queued = _thread_times("thread-self")[1] - queued
    return {"took": took, "blocked": max(0.0, took - ran - queued)}


def _thread_times(thread):
    """(seconds on a core, seconds runnable but waiting for one) of /proc/<thread>."""
    ran, queued, _ = pathlib.Path(f"/proc/{thread}/schedstat").read_text().split()
    return int(ran) / 1e9, int(queued) / 1e9


def _threads():
    """CPU seconds by thread of this process."""
    return {thread: _thread_times(f"self/task/{thread}")[0] for thread in os.listdir("/proc/self/task")}


def main():
    with multiprocessing.connection.Client(sys.argv[1], "AF_UNIX") as connection:
        child = Child(connection)
        connection.send(("hello", os.getpid()))
        while True:
            try:
                command, arguments = connection.recv()
            except EOFError:
                return child.close()
            try:
                connection.send(("result", getattr(child, command)(**arguments)))
            except Exception:
                connection.send(("error", traceback.format_exc()))


if __name__ == "__main__":
    main()
