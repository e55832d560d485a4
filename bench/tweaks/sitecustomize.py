# SPDX-License-Identifier: Apache-2.0
"""Changes to every Python process that has this folder on PYTHONPATH, to find causes.

BENCH_TWEAKS is a comma-separated list of:
  noaffinity  os.sched_setaffinity does nothing: nobody pins the worker to one core
  noyield     os.sched_yield sleeps 50 us: vLLM's message queue does not spin
"""
import os
import time

_tweaks = os.environ.get("BENCH_TWEAKS", "").split(",")
if "noaffinity" in _tweaks:
    os.sched_setaffinity = lambda pid, cores: None
if "noyield" in _tweaks:
    os.sched_yield = lambda: time.sleep(50e-6)
