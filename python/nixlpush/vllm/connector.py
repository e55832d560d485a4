# SPDX-License-Identifier: Apache-2.0
"""The class that vLLM loads. It only passes calls on to the part for its role."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    SupportsHMA,
)

from nixlpush.vllm import releases
from nixlpush.vllm import settings as connector_settings
from nixlpush.vllm.geometry import require_supported
from nixlpush.vllm.metadata import HandshakeMetadata, StepMetadata

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (
        KVConnectorHandshakeMetadata,
        KVConnectorTransferResults,
    )
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorPromMetrics,
        KVConnectorStats,
        PromMetric,
        PromMetricT,
    )
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

    from nixlpush.vllm.scheduler import PushScheduler
    from nixlpush.vllm.worker import PushWorker


class NixlPushConnector(KVConnectorBase_V1, SupportsHMA):
    """P pushes the KV cache of a prompt into D's memory. Either side, per request."""

    _cache_hit_source = releases.cache_hit_source()

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _share_log_handlers()
        settings = connector_settings.read(vllm_config)
        require_supported(vllm_config, kv_cache_config)
        self._scheduler: PushScheduler | None = None
        self._worker: PushWorker | None = None
        self._lost_blocks: set[int] = set()
        if role == KVConnectorRole.SCHEDULER:
            from nixlpush.vllm.scheduler import PushScheduler

            self._scheduler = PushScheduler(settings, vllm_config, kv_cache_config)
        else:
            from nixlpush.vllm.worker import PushWorker

            self._worker = PushWorker(settings, vllm_config, kv_cache_config)

    @property
    def scheduler(self) -> PushScheduler:
        assert self._scheduler is not None, "this is a worker's connector"
        return self._scheduler

    @property
    def worker(self) -> PushWorker:
        assert self._worker is not None, "this is the scheduler's connector"
        return self._worker

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
        if self._scheduler is not None:
            self._scheduler.shutdown()

    # ---- Of the class: called in any process ----

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: VllmConfig) -> str | None:
        model = vllm_config.model_config
        return None if model is None or model.use_mla else releases.heads_first()

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        from nixlpush.vllm.prometheus import PushStats

        return PushStats() if data is None else PushStats(data=data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics:
        from nixlpush.vllm.prometheus import PushPromMetrics

        return PushPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # ---- Of the scheduler ----

    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]
    ) -> None:
        self.scheduler.publish(metadata)

    def on_new_request(self, request: Request) -> None:
        self.scheduler.on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self.scheduler.get_num_new_matched_tokens(request, num_computed_tokens)

    def get_loaded_kv_cache_group_ids(self, request: Request) -> tuple[int, ...]:
        return self._kv_cache_config.transfer_group_ids

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        self.scheduler.update_state_after_alloc(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepMetadata:
        return self.scheduler.build_connector_meta()

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        self.scheduler.update_connector_output(connector_output)

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.scheduler.request_finished(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.scheduler.request_finished(request, block_ids)

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.has_pending_push_work()

    # ---- Of a worker ----

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self.worker.register_kv_caches(kv_caches)

    def get_handshake_metadata(self) -> HandshakeMetadata | None:
        return self.worker.handshake_metadata()

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        step = self._get_connector_metadata()
        assert isinstance(step, StepMetadata)
        self.worker.start_step(step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request runs only after its KV has arrived."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: AttentionMetadata,
        **kwargs: Any,
    ) -> None:
        """Nothing: blocks are offered when the prompt is done."""

    def wait_for_save(self) -> None:
        """Nothing: the blocks of an offer are held until its event."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        results = self.worker.take_results()
        return base.KVConnectorTransferResults(
            results.sent, results.received, results.failed
        )

    def get_finished(
        self, finished_req_ids: set[str]
    ) -> tuple[set[str] | None, set[str] | None]:
        """What older releases call instead of get_transfer_results. They learn of a failed
        receive from the ids of its blocks."""
        results = self.worker.take_results()
        self._lost_blocks |= results.lost_blocks
        return results.sent or None, results.received or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        lost, self._lost_blocks = self._lost_blocks, set()
        return lost

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        return self._worker.take_stats() if self._worker is not None else None


def _share_log_handlers() -> None:
    """Without handlers of its own, the logger `nixlpush` writes where vLLM's does."""
    ours, theirs = logging.getLogger("nixlpush"), logging.getLogger("vllm")
    if not ours.hasHandlers():
        for handler in theirs.handlers:
            ours.addHandler(handler)
        ours.setLevel(theirs.getEffectiveLevel())
