# SPDX-License-Identifier: Apache-2.0
"""vLLM's NIXL statistics and metrics, and one of ours: why requests failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import (
    NixlKVConnectorStats,
    NixlPromMetrics,
)

from nixlpush.types import REASONS

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import PromMetric, PromMetricT

FAILED = "failed_requests"


class PushStats(NixlKVConnectorStats):
    """vLLM's lists, and one with the reason of each request that failed."""

    def reset(self) -> None:
        super().reset()
        self.data[FAILED] = []

    def is_empty(self) -> bool:
        return super().is_empty() and not self.data[FAILED]


class PushPromMetrics(NixlPromMetrics):
    """vLLM's metrics, and `vllm:nixlpush_failed_requests` by reason."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        failed = self._counter_cls(
            name="vllm:nixlpush_failed_requests",
            documentation="Requests whose KV was not sent (P) or not received (D), by reason.",
            labelnames=[*labelnames, "reason"],
        )
        self._failed = {
            (engine, reason): failed.labels(*values, reason)
            for engine, values in per_engine_labelvalues.items()
            for reason in REASONS.values()
            if reason != "none"
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        super().observe(transfer_stats_data, engine_idx)
        for reason in transfer_stats_data.get(FAILED, ()):
            self._failed[engine_idx, reason].inc()
