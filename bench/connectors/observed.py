# SPDX-License-Identifier: Apache-2.0
"""nixlpush's connector, with a log line for each push and a line of statistics each half second.

For programs that watch a worker from outside: `harness.metrics` reads these lines. It looks
into the worker's parts, which only this file of bench/ does.
"""
import ctypes
import json
import logging
import os
import select
import threading
import time

from nixlpush.types import RECEIVED, SENT
from nixlpush.vllm import connector, worker

logger = logging.getLogger("nixlpush.observed")
STATS_SECONDS = 0.5


class _Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]


_mallinfo2 = ctypes.CDLL(None).mallinfo2
_mallinfo2.restype = _Mallinfo


def malloc_bytes():
    """What is allocated with malloc right now, without the holes in between."""
    info = _mallinfo2()
    return info.uordblks + info.hblkhd


class NixlPushConnector(connector.NixlPushConnector):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        if self._worker is not None:
            self._worker = ObservedWorker(
                self._worker._settings, vllm_config, kv_cache_config)


class ObservedWorker(worker.PushWorker):
    def register_kv_caches(self, kv_caches):
        super().register_kv_caches(kv_caches)
        self._signalled = self._taken = 0.0  # when an event last came, and was last taken
        threading.Thread(target=self._watch, args=(self._engine.event_fd(),), daemon=True).start()

    def _take(self, event):
        entry = self._pending.get(event.tag)
        if entry is not None and event.kind in (SENT, RECEIVED):
            now = time.monotonic()
            # Taken before the thread below woke up: it came just now.
            came = self._signalled if self._signalled > self._taken else now
            self._taken = now
            times = f"signalled={came:.6f} taken={now:.6f}"
            if event.kind == SENT:
                logger.info(
                    "pushed request=%s bytes=%d pairs=%d descriptors=%d write_ns=%d post_ns=%d "
                    "match_ns=%d %s", entry.request_id, event.bytes, event.block_pairs,
                    event.descriptors, event.write_ns, event.post_ns, event.match_ns, times)
            else:
                logger.info("got request=%s %s", entry.request_id, times)
        super()._take(event)

    def _watch(self, event_fd):
        """Notes when events arrive (each time, not as long as they wait), and logs statistics."""
        poller = select.epoll()
        poller.register(event_fd, select.EPOLLIN | select.EPOLLET)
        next_stats = 0.0
        while (engine := self._engine) is not None:
            if poller.poll(STATS_SECONDS):
                self._signalled = time.monotonic()
            if time.monotonic() >= next_stats:
                next_stats = time.monotonic() + STATS_SECONDS
                stats = engine.stats() | {"fds": len(os.listdir("/proc/self/fd")),
                                          "malloc_bytes": malloc_bytes(), "at": time.monotonic()}
                logger.info("stats %s", json.dumps(stats))
