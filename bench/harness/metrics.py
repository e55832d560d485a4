# SPDX-License-Identifier: Apache-2.0
"""What an engine says about itself: its /metrics page, its log, its processes."""
import json
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


def block_size(engine):
    """Tokens in a KV block of the engine."""
    with urllib.request.urlopen(engine.url("/metrics"), timeout=10) as answer:
        return int(re.search(r'cache_config_info\{[^}]*block_size="(\d+)"', answer.read().decode())[1])


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


LOGGED = re.compile(r"\] (pushed|got) (request=.*)$")
STATS = re.compile(r"\] stats (\{.*\})$")
FIELD = re.compile(r"(\w+)=(\S+)")


class Watch:
    """Reads what connectors/observed.py logs about one engine."""

    def __init__(self, engine):
        self.path = engine.log
        self.offset = 0
        self.ends = {}  # base request id: the fields of "pushed" (P) or "got" (D)
        self.stats = {}  # the latest

    def read(self):
        """Takes in what was logged since the last call."""
        with self.path.open("rb") as log:
            log.seek(self.offset)
            text = log.read()
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        for line in text[:whole].decode(errors="replace").splitlines():
            if match := LOGGED.search(line):
                fields = {name: _number(value) for name, value in FIELD.findall(match[2])}
                self.ends[base_id(fields["request"])] = fields
            elif match := STATS.search(line):
                self.stats = json.loads(match[1])

    def end_of(self, request_id, seconds=5.0):
        """What was logged about the end of a request. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while request_id not in self.ends:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} says nothing about the end of {request_id}")
            time.sleep(0.02)
            self.read()
        return self.ends[request_id]

    def fresh_stats(self, seconds=10.0):
        """Statistics from after this call. Raises TimeoutError."""
        now, deadline = time.monotonic(), time.monotonic() + seconds
        while self.stats.get("at", 0) <= now:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no statistics in {self.path} for {seconds:.0f} s")
            time.sleep(0.1)
            self.read()
        return self.stats


def base_id(request_id):
    """The client's id in vLLM's: `cmpl-<client's>-<index>-<8 random digits>`."""
    return re.sub(r"^cmpl-|-\d+-[0-9a-f]{8}$", "", request_id)


def _number(text):
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def rss_kib(pid):
    """Resident memory of its own (not shared), KiB."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid}: no Pss_Anon in smaps_rollup")


def fd_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))
