# SPDX-License-Identifier: Apache-2.0
"""What an engine says about itself: its /metrics page, its log, its processes."""
import os
import pathlib
import re
import time
import urllib.request

LINE = re.compile(r"^([a-zA-Z_:]+)(\{[^}]*\})? ([0-9.eE+-]+)$")


def scrape(engine):
    """Every metric of the engine, summed over its labels."""
    with urllib.request.urlopen(engine.url("/metrics"), timeout=10) as answer:
        text = answer.read().decode()
    values = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            values[match[1]] = values.get(match[1], 0.0) + float(match[3])
    return values


def kv_usage(engine):
    """The share of KV blocks in use, 0 to 1."""
    return scrape(engine)["vllm:kv_cache_usage_perc"]


def wait_for_usage(engine, at_most, seconds):
    """Waits until no more than that share of KV blocks is in use. Returns (reached, share)."""
    deadline = time.monotonic() + seconds
    while True:
        share = kv_usage(engine)
        if share <= at_most or time.monotonic() > deadline:
            return share <= at_most, share
        time.sleep(0.25)


PUSHED = re.compile(r"pushed (request=.*)$")
PAIR = re.compile(r"(\w+)=(\S+)")


class LogReader:
    """Reads what an engine has logged since the last call."""

    def __init__(self, engine):
        self.path = engine.log
        self.offset = 0

    def lines(self):
        with self.path.open("rb") as log:
            log.seek(self.offset)
            text = log.read()
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        return text[:whole].decode(errors="replace").splitlines()

    def pushes(self):
        """P's line about each push: {"request": ..., "bytes": ..., ...}, numbers as int."""
        found = []
        for line in self.lines():
            if match := PUSHED.search(line):
                found.append({k: int(v) if v.isdigit() else v for k, v in PAIR.findall(match[1])})
        return found


def rss_kib(pid):
    """Resident memory of its own (not shared), KiB."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid}: no Pss_Anon in smaps_rollup")


def fd_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def thread_count(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def cpu_seconds(pid):
    """CPU time of a process so far, all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
