# SPDX-License-Identifier: Apache-2.0
"""Lab engines (see lab/): processes that the caller drives, freezes and ends."""
import mmap
import multiprocessing.connection
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from .engine import STOCK, Options, free_port
from .machine import OUT, ROOT

START_SECONDS = 300


class Lab:
    """A folder in memory for sockets and KV caches, and the processes in it."""

    def __init__(self, machine):
        self.machine = machine
        self.folder = tempfile.mkdtemp(prefix="nixlpush-bench-", dir="/dev/shm")
        self.children = []

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(143)))
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
        shutil.rmtree(self.folder)

    def start(self, name, connector):
        child = Child(self, name, connector)
        self.children.append(child)
        return child


class Child:
    """One process. `call` waits for the answer, `send` and `answer` do not belong together in time."""

    def __init__(self, lab, side, connector):
        self.lab, self.side, self.connector = lab, side, connector
        address = f"{lab.folder}/{connector}-{side}"
        log = OUT / "logs" / f"lab-{connector}-{side}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        environment = dict(os.environ)
        environment.update(lab.machine.environment(0))
        # Both connectors alike: nobody pins the engine thread (stock would, on a CPU).
        environment.update(BENCH_TWEAKS="noaffinity", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
        environment["PYTHONPATH"] = f"{ROOT / 'bench'}{os.pathsep}{environment['PYTHONPATH']}"
        with multiprocessing.connection.Listener(address, "AF_UNIX") as listener:
            with log.open("wb") as output:
                self.process = subprocess.Popen(
                    [lab.machine.python, "-m", "lab.child", address], env=environment,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    process_group=0)
            self.connection = self._accept(listener)
        self.connection.recv()  # hello

    def _accept(self, listener):
        listener._listener._socket.settimeout(1)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return listener.accept()
            except TimeoutError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the process did not start; see {self.log}") from None

    def open(self, prefix_caching=False, extra=None):
        """A new engine in the process. Returns what the parent needs to know of its cache."""
        self.engine_id = f"lab-{self.side}-{free_port()}"
        self.side_port = free_port()
        transfer = Options(self.connector, extra=extra or {}).transfer_config(self.engine_id)
        transfer["kv_port"] = free_port()
        self.cache = self.call("open", folder=self.lab.folder, side=self.side, transfer=transfer,
                               side_port=self.side_port, prefix_caching=prefix_caching)

    def call(self, command, **arguments):
        self.send(command, **arguments)
        return self.answer()

    def send(self, command, **arguments):
        self.connection.send((command, arguments))

    def answer(self, seconds=120):
        """The next message. Raises RuntimeError for an error over there."""
        if not self.connection.poll(seconds):
            raise TimeoutError(f"{self.connector} {self.side} does not answer; see {self.log}")
        kind, value = self.connection.recv()
        if kind == "error":
            raise RuntimeError(f"{self.connector} {self.side} (log: {self.log}):\n{value}")
        return value

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Landing:
    """Sees bytes arrive in D's cache, by looking at the last word of pages."""

    def __init__(self, cache):
        import numpy

        size = cache["layers"] * cache["blocks"] * cache["page"]
        with pathlib.Path(cache["cache"]).open("rb") as file:
            memory = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        words = numpy.frombuffer(memory, numpy.uint64).reshape(
            cache["layers"], cache["blocks"], cache["page"] // 8)
        self._last = words[:, :, -1]
        self._numpy = numpy

    def wait(self, blocks, seconds=60):
        """When all of these blocks had arrived: a sample of 16 of them, in all layers."""
        sample = self._numpy.array(sorted({*blocks[::max(1, len(blocks) // 16)], blocks[-1]}))
        deadline = time.monotonic() + seconds
        while not self._last[:, sample].all():
            if time.monotonic() > deadline:
                raise TimeoutError("the KV did not arrive")
            time.sleep(0.0002)
        return time.monotonic()


class Duo:
    """P and D of one connector, side by side with those of another that sleep meanwhile."""

    def __init__(self, lab, connector):
        self.connector = connector
        self.p, self.d = lab.start("P", connector), lab.start("D", connector)
        self.count = 0
        self.landing = None

    def open(self, **options):
        self.p.open(**options)
        self.d.open(**options)
        self.landing = self.landing or Landing(self.d.cache)

    def freeze(self):
        self.p.freeze()
        self.d.freeze()

    def thaw(self):
        self.p.thaw()
        self.d.thaw()

    def next_id(self):
        """A request id on either side, as vLLM makes them: one base, two endings."""
        self.count += 1
        base = f"cmpl-{self.connector}-{self.p.side_port}-{self.count}-0"
        return f"{base}-aaaaaaaa", f"{base}-dddddddd"

    def params(self, base):
        """kv_transfer_params of the two legs."""
        p = self.p
        return ({"do_remote_decode": True, "do_remote_prefill": False},
                {"do_remote_decode": False, "do_remote_prefill": True,
                 "remote_engine_id": p.engine_id, "remote_host": "127.0.0.1",
                 "remote_port": p.side_port, "tp_size": 1, "pp_size": 1, "remote_request_id": base})


CONNECTORS = ("ours", STOCK)
