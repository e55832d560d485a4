# SPDX-License-Identifier: Apache-2.0
"""Which deployments the connector serves. What it does not is refused when vLLM starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import FullAttentionSpec, UniformTypeKVCacheSpecs

from nixlpush.vllm import releases

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec


def require_supported(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
    """Raises NotImplementedError, which lists all that is not supported."""
    problems = [*_parallelism(vllm_config), *_cache(kv_cache_config), *_device(vllm_config)]
    if problems:
        raise NotImplementedError(
            f"NixlPushConnector of nixlpush does not support yet: {'; '.join(problems)}. "
            "Supported: tensor, pipeline and context parallel size 1 with one group of "
            "full-attention layers, in memory of a GPU or on a CPU."
        )


def layer_specs(kv_cache_config: KVCacheConfig) -> dict[str, KVCacheSpec]:
    """The cache spec of every layer that is transferred."""
    specs: dict[str, KVCacheSpec] = {}
    for group in releases.transfer_groups(kv_cache_config):
        spec = group.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            specs.update(spec.kv_cache_specs)
        else:
            specs.update(dict.fromkeys(group.layer_names, spec))
    return specs


def _parallelism(vllm_config: VllmConfig) -> list[str]:
    parallel = vllm_config.parallel_config
    sizes = {
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "decode_context_parallel_size": parallel.decode_context_parallel_size,
        "prefill_context_parallel_size": parallel.prefill_context_parallel_size,
    }
    return [f"{name}={size}" for name, size in sizes.items() if size > 1]


def _cache(kv_cache_config: KVCacheConfig) -> list[str]:
    problems = []
    groups = releases.transfer_groups(kv_cache_config)
    if len(groups) != 1:
        problems.append(f"{len(groups)} groups of KV cache layers")
    if any(getattr(group, "host_resident", False) for group in groups):
        problems.append("a KV cache kept in host memory")
    specs = layer_specs(kv_cache_config).values()
    other = {type(spec).__name__ for spec in specs if not isinstance(spec, FullAttentionSpec)}
    problems += [f"layers with {name}" for name in sorted(other)]
    if any(getattr(spec, "prefix_replay_tokens", 0) for spec in specs):
        problems.append("layers that replay a window after a prefix hit")
    return problems


def _device(vllm_config: VllmConfig) -> list[str]:
    device = current_platform.device_type
    buffer = vllm_config.kv_transfer_config.kv_buffer_device
    if device not in ("cuda", "cpu"):
        return [f"platform {device}"]
    return [] if buffer == device else [f"kv_buffer_device={buffer} on platform {device}"]
