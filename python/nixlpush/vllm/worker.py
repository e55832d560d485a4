# SPDX-License-Identifier: Apache-2.0
"""The worker's part: cache tensors and step metadata in, finished requests out."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nixlpush.engine import Engine
from nixlpush.errors import CallError
from nixlpush.types import RECEIVED, SENT, Decline, Event, Expect, Offer, Options, unpack_ids
from nixlpush.vllm import compat, layout
from nixlpush.vllm.metadata import HandshakeMetadata, StepMetadata
from nixlpush.vllm.ranks import rank_of
from nixlpush.vllm.settings import Settings
from nixlpush.vllm.stats import Recorder

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from nixlpush.vllm.prometheus import PushStats

logger = logging.getLogger(__name__)


@dataclass
class Results:
    """Ids of requests that ended since the last look. Failed ones are in received, too."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    lost_blocks: set[int] = field(default_factory=set)


class PushWorker:
    """Runs on the worker's main thread.

    It reports a request once and only if the scheduler waits for it: vLLM's core asserts
    both. So it keeps what it handed over by tag, and an entry leaves with its event.
    """

    def __init__(
        self, settings: Settings, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig
    ) -> None:
        self._settings = settings
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._engine: Engine | None = None
        self._stats: Recorder | None = None
        self._pending: dict[int, Expect | Offer] = {}
        self._results = Results()

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Opens the engine over the cache. Blocks while NIXL starts and pins the memory."""
        # UCX keeps unused registrations for ever otherwise; vLLM sets the same.
        os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")
        cache = layout.describe(self._vllm_config, self._kv_cache_config, kv_caches)
        self._engine = Engine.open(self._options())
        self._engine.register(cache)
        self._stats = Recorder(self._engine)
        logger.info(
            "engine %s registered %d regions of %d blocks, %d memory ranges, layout %s",
            self._settings.engine_id,
            len(cache.regions),
            cache.num_blocks,
            len(cache.memory),
            cache.name,
        )

    def _options(self) -> Options:
        settings = self._settings
        rank = rank_of(self._vllm_config.parallel_config)
        backends = compat.backend_names(self._vllm_config)
        return Options(
            engine_id=settings.engine_id,
            side_channel_host=settings.side_channel_host,
            side_channel_port=settings.side_channel_port,
            **rank._asdict(),
            backends=settings.backends,
            compat_hash=compat.compat_hash(self._vllm_config, backends),
            compat_factors=compat.compat_factors(self._vllm_config, backends),
            ignore_compat=not settings.enforce_compat,
            lease_ms=_ms(settings.lease),
            receive_timeout_ms=_ms(settings.receive_timeout),
            peer_ttl_ms=_ms(settings.peer_ttl) if settings.peer_ttl > 0 else -1,
        )

    def handshake_metadata(self) -> HandshakeMetadata | None:
        return HandshakeMetadata(self._engine.metadata()) if self._engine else None

    def shutdown(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # ---- Every step ----

    def start_step(self, step: StepMetadata) -> None:
        """Hands over what changed. A request the engine refuses ends as failed."""
        if not step:
            return
        for request_id, block_ids in step.rejected:
            self._received(request_id, block_ids, ok=False)
        for expect in step.expects:
            if expect.block_counts:
                self._pending[expect.tag] = expect
        for offer in step.offers:
            self._pending[offer.tag] = offer
        try:
            self._submit(step.expects, step.offers, step.cancels, step.declines)
        except CallError:
            self._submit_one_by_one(step)

    def _submit(
        self,
        expects: tuple[Expect, ...] = (),
        offers: tuple[Offer, ...] = (),
        cancels: tuple[int, ...] = (),
        declines: tuple[Decline, ...] = (),
    ) -> None:
        if self._engine is None:
            raise RuntimeError("a step before register_kv_caches or after shutdown")
        self._engine.submit(expects, offers, cancels, declines)

    def _submit_one_by_one(self, step: StepMetadata) -> None:
        """A step is taken wholly or not at all; this finds out which entry is at fault."""
        cancels = list(step.cancels)
        for expect in step.expects:
            try:
                self._submit(expects=(expect,))
            except CallError as error:
                logger.error("cannot receive request %s: %s", expect.request_id, error)
                self._end(expect.tag, ok=False)
                cancels.append(expect.tag)  # of what was announced before
        for offer in step.offers:
            try:
                self._submit(offers=(offer,))
            except CallError as error:
                logger.error("cannot send request %s: %s", offer.request_id, error)
                self._end(offer.tag, ok=False)
        for decline in step.declines:
            try:
                self._submit(declines=(decline,))
            except CallError as error:
                logger.error("cannot decline request %s: %s", decline.request_id, error)
        try:
            self._submit(cancels=tuple(cancels))
        except CallError as error:
            # The engine is broken and ends everything by itself.
            logger.error("cannot cancel: %s", error)

    def take_results(self) -> Results:
        """What ended since the last call, each request once."""
        if self._pending and self._engine is not None:
            for event in self._engine.poll():
                self._take(event)
        results, self._results = self._results, Results()
        return results

    def _take(self, event: Event) -> None:
        entry = self._end(event.tag, ok=event.kind in (SENT, RECEIVED))
        if entry is None:
            return
        if event.kind == SENT and self._stats is not None:
            self._stats.sent(event)
        elif event.failed:
            if self._stats is not None:
                self._stats.failed(event.reason)
            verb = "sent" if isinstance(entry, Offer) else "received"
            logger.warning("KV of request %s was not %s: %s", entry.request_id, verb, event)

    def _end(self, tag: int, *, ok: bool) -> Expect | Offer | None:
        """Queues the end of an entry for the next results; None if it is not pending."""
        entry = self._pending.pop(tag, None)
        if isinstance(entry, Offer):
            self._results.sent.add(entry.request_id)
        elif entry is not None:
            self._received(entry.request_id, entry.block_ids, ok=ok)
        return entry

    def _received(self, request_id: str, block_ids: bytes, *, ok: bool) -> None:
        self._results.received.add(request_id)
        if not ok:
            self._results.failed.add(request_id)
            self._results.lost_blocks.update(unpack_ids(block_ids))

    def take_stats(self) -> PushStats | None:
        return self._stats.take() if self._stats is not None else None


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
