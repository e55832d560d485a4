# SPDX-License-Identifier: Apache-2.0
"""A process with one lab engine that does what its parent tells it.

usage: python -m lab.child SOCKET     (then `harness.lab` sends (command, arguments))
"""
import multiprocessing.connection
import os
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
        return {"connector": engine.timed.total() / count, "forward": loops}

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

    def prefill(self, request_id, tokens, params):
        """P: computes the prompt; the blocks go out with the next step."""
        engine = self.engine
        engine.timed.reset()
        engine.add(request_id, tokens, params, seed=tokens)
        engine.timed.reset()
        engine.step()
        return {"request_finished": engine.timed.seconds.get("request_finished", 0.0)
                + engine.timed.seconds.get("request_finished_all_groups", 0.0)}

    def push(self, request_id, forward=None, wait=True):
        """P: the step that carries the finished request, and steps until it is sent."""
        engine, loops = self.engine, []
        engine.timed.reset()
        self.posted.clear()
        engine.step(lambda: loops.append(_run(forward)))
        result = {"seconds": dict(engine.timed.seconds), "connector": engine.timed.total(),
                  "forward": loops[0], "began": engine.step_began}
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
        """CPU seconds of this process so far."""
        return time.process_time()

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
    ("python", n) is a fixed amount of Python, ("busy", s) Python for a time. Returns seconds."""
    if not forward:
        return 0.0
    kind, amount = forward
    began = time.perf_counter()
    if kind == "sleep":
        time.sleep(amount)
    elif kind == "python":
        total = 0
        for i in range(int(amount)):
            total += i
    else:
        while time.perf_counter() < began + amount:
            pass
    return time.perf_counter() - began


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
