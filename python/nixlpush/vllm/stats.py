# SPDX-License-Identifier: Apache-2.0
"""vLLM's NIXL statistics, filled from events and from the engine's counters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nixlpush.engine import Engine
from nixlpush.types import REASONS, Event

if TYPE_CHECKING:
    from nixlpush.vllm.prometheus import PushStats

# vLLM's name of a list with one entry per failure: the engine's counter.
_COUNTERS = {
    "num_failed_transfers": "failed_transfers",
    "num_failed_notifications": "failed_notifications",
    "num_failed_handshakes": "failed_handshakes",
    "num_kv_expired_reqs": "expired_offers",
    "num_notifications_after_expiry": "notifications_after_end",
}
_INTERVAL = 1.0  # seconds between two looks at the counters


class Recorder:
    """Collects what happened since the last `take`. Transfers are recorded by the side that
    writes, which is P."""

    def __init__(self, engine: Engine) -> None:
        from nixlpush.vllm.prometheus import PushStats

        self._engine = engine
        self._stats: PushStats = PushStats()
        self._seen = engine.stats()
        self._next_look = 0.0
        self._empty = True

    def sent(self, event: Event) -> None:
        data = self._stats.data
        data["transfer_duration"].append(event.write_ns / 1e9)
        data["post_duration"].append(event.post_ns / 1e9)
        data["bytes_transferred"].append(event.bytes)
        data["num_descriptors"].append(event.descriptors)
        self._empty = False

    def failed(self, reason: int) -> None:
        """Records that a request was not sent or not received."""
        self._stats.data["failed_requests"].append(REASONS[reason])
        self._empty = False

    def take(self) -> PushStats | None:
        """What happened since the last call; None if nothing. Called every step."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _INTERVAL
            self._look()
        if self._empty:
            return None
        self._empty = True
        return self._stats.clone_and_reset()

    def _look(self) -> None:
        counters = self._engine.stats()
        for name, counter in _COUNTERS.items():
            new = counters[counter] - self._seen[counter]
            if new and name in self._stats.data:  # older releases count fewer kinds
                self._stats.data[name].extend([1] * new)
                self._empty = False
        self._seen = counters
