# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine: its options, its processes, its end."""
import dataclasses
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

HOST = "127.0.0.1"
MODEL_NAME = "tiny"
STOCK, OURS = "stock", "ours"


# Below the ports that the system gives to outgoing connections: an engine takes a minute to bind.
PORTS = range(15000, 32000)


def free_port():
    """A port that was free a moment ago."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, random.choice(PORTS)))
            except OSError:
                continue
            return probe.getsockname()[1]


@dataclasses.dataclass
class Options:
    """What distinguishes one engine from another."""

    connector: str = OURS  # stock, ours, none, or "module:Class"
    role: str = "kv_both"
    prefix_caching: bool = False
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    extra: dict = dataclasses.field(default_factory=dict)  # kv_connector_extra_config
    arguments: list = dataclasses.field(default_factory=list)  # of vLLM's server
    environment: dict = dataclasses.field(default_factory=dict)
    own_session: bool = False  # setsid: the kernel then schedules the engine as a group of its own

    @property
    def ranks(self):
        return self.tensor_parallel * self.pipeline_parallel

    def transfer_config(self, engine_id):
        """The value of --kv-transfer-config, or None without a connector."""
        if self.connector == "none":
            return None
        config = {"kv_connector": "NixlPushConnector", "kv_role": self.role, "engine_id": engine_id,
                  "kv_connector_extra_config": self.extra}
        if self.connector != STOCK:
            source = "nixlpush.vllm" if self.connector == OURS else self.connector
            module, _, name = source.partition(":")
            config["kv_connector_module_path"] = module
            config["kv_connector"] = name or "NixlPushConnector"
        return config


class Engine:
    """A vLLM server in a process group of its own, so that all of it can be ended."""

    def __init__(self, name, options, machine, model, folder, device=None):
        self.name = name
        self.engine_id = f"engine-{name}-{os.getpid()}"
        self.options = options
        self.machine = machine
        self.model = model
        self.device = device
        self.port = free_port()
        self.side_port = free_port()
        self.log = pathlib.Path(folder) / f"{name}.log"
        self.process = None

    def start(self):
        own = {"start_new_session": True} if self.options.own_session else {"process_group": 0}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), env=self._environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, **own)

    def healthy(self):
        """Whether it serves. Raises if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"engine {self.name} ended with status {self.process.returncode} "
                               f"while starting; the end of {self.log}:\n{self.tail()}")
        try:
            with urllib.request.urlopen(self.url("/health"), timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        """Ends every process of the engine: politely, then for good after ten seconds."""
        if self.process is None:
            return
        # Only the server: it ends the others, and Python's resource tracker removes their shared memory.
        self.process.terminate()
        deadline = time.monotonic() + 10
        while self.pids() and time.monotonic() < deadline:
            self.process.poll()
            time.sleep(0.1)
        self.kill()

    def kill(self):
        """kill -9 for every process of the engine."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def url(self, path):
        return f"http://{HOST}:{self.port}{path}"

    def tail(self, lines=25):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def pids(self):
        """The processes of the engine's group that still run."""
        return [pid for pid, fields in _processes() if fields[2] == str(self.process.pid)
                and fields[0] != "Z"]

    def worker_pid(self):
        """The process that holds the KV cache: the worker, or the core if they are one."""
        names = {pid: _command_line(pid) for pid in self.pids()}
        for mark in ("Worker", "EngineCore"):
            for pid, name in names.items():
                if mark in name:
                    return pid
        raise RuntimeError(f"engine {self.name}: no worker among {names}")

    def _command(self):
        command = [
            self.machine.python, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(self.model), "--served-model-name", MODEL_NAME, "--skip-tokenizer-init",
            "--host", HOST, "--port", str(self.port), "--max-model-len", "8192",
            "--enforce-eager", "--tensor-parallel-size", str(self.options.tensor_parallel),
            "--pipeline-parallel-size", str(self.options.pipeline_parallel),
            "--enable-prefix-caching" if self.options.prefix_caching else "--no-enable-prefix-caching",
        ]
        config = self.options.transfer_config(self.engine_id)
        if config:
            command += ["--kv-transfer-config", json.dumps(config)]
        needed = self.machine.arguments(self.options, kind=self.model.name)
        return command + needed + self.options.arguments

    def _environment(self):
        environment = dict(os.environ)
        environment.update(
            VLLM_NIXL_SIDE_CHANNEL_HOST=HOST, VLLM_NIXL_SIDE_CHANNEL_PORT=str(self.side_port),
            HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", PYTHONUNBUFFERED="1")
        environment.update(self.machine.environment(self.device, self.options.ranks))
        environment.update(self.options.environment)
        return environment


def _processes():
    """(pid, [state, ppid, pgrp, ...]) of every process."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            yield int(entry), stat.rpartition(")")[2].split()


def _command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
