# SPDX-License-Identifier: Apache-2.0
"""What is transferred of a model's cache, and which deployments the connector serves. What it
does not is refused when vLLM starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from nixlpush.vllm import releases, states

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

_DESCRIBED = FullAttentionSpec, SlidingWindowSpec, MambaSpec
_MAX_GROUPS = 64


class Layer(NamedTuple):
    """A layer that is transferred."""

    name: str
    spec: KVCacheSpec
    group: int  # among those that are transferred


def layers_of(kv_cache_config: KVCacheConfig) -> Iterator[Layer]:
    """All that are transferred, group by group."""
    for index, group in enumerate(releases.transfer_groups(kv_cache_config)):
        spec = group.kv_cache_spec
        specs = spec.kv_cache_specs if isinstance(spec, UniformTypeKVCacheSpecs) else {}
        for name in group.layer_names:
            yield Layer(name, specs.get(name, spec), index)


def group_specs(kv_cache_config: KVCacheConfig) -> list[KVCacheSpec]:
    """One layer's spec for each group that is transferred: its layers agree on what a block
    id stands for."""
    specs = []
    for group in releases.transfer_groups(kv_cache_config):
        spec = group.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs) and spec.kv_cache_specs:
            spec = next(iter(spec.kv_cache_specs.values()))
        specs.append(spec)
    return specs


def block_sizes(kv_cache_config: KVCacheConfig) -> list[int]:
    """Tokens in a block of each group that has tokens; of all groups, if none has."""
    specs = group_specs(kv_cache_config)
    sizes = [spec.block_size for spec in specs if not is_state(spec)]
    return sizes or [spec.block_size for spec in specs]


def is_state(spec: KVCacheSpec) -> bool:
    """Whether a block is one state of a request instead of some tokens."""
    return isinstance(spec, MambaSpec)


def window_of(spec: KVCacheSpec) -> int:
    """How many tokens a layer looks back if blocks before them are given up; 0: all."""
    return spec.sliding_window if isinstance(spec, SlidingWindowSpec) else 0


def require_supported(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
    """Raises NotImplementedError, which lists all that is not supported."""
    problems = [
        *_parallelism(vllm_config),
        *_cache(kv_cache_config),
        *_failures(vllm_config, kv_cache_config),
        *_states(vllm_config, kv_cache_config),
        *_device(vllm_config),
    ]
    if problems:
        raise NotImplementedError(
            f"NixlPushConnector of nixlpush does not support: {'; '.join(problems)}. "
            "Supported: any tensor parallel size, stages with kv_role=kv_producer, groups of "
            "full-attention, sliding-window, MLA and Mamba layers, in memory of a GPU or on "
            "a CPU."
        )


def _parallelism(vllm_config: VllmConfig) -> list[str]:
    parallel = vllm_config.parallel_config
    problems = [
        f"{name}={size}, which deals out tokens to ranks"
        for name in ("decode_context_parallel_size", "prefill_context_parallel_size")
        if (size := getattr(parallel, name)) > 1
    ]
    stages, role = parallel.pipeline_parallel_size, vllm_config.kv_transfer_config.kv_role
    if stages > 1 and role != "kv_producer":
        problems.append(f"pipeline_parallel_size={stages} with kv_role={role}")
    return problems


def _failures(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> list[str]:
    """Older releases learn of a failed receive from the ids of its blocks, and end the whole
    engine if those are of several groups."""
    role = vllm_config.kv_transfer_config.kv_role
    groups = len(releases.transfer_groups(kv_cache_config))
    if groups == 1 or role == "kv_producer" or releases.names_failed_requests():
        return []
    return [f"{groups} groups of layers with kv_role={role} before vLLM 0.30"]


def _cache(kv_cache_config: KVCacheConfig) -> list[str]:
    problems = []
    groups = releases.transfer_groups(kv_cache_config)
    if not 1 <= len(groups) <= _MAX_GROUPS:
        problems.append(f"{len(groups)} groups of KV cache layers")
    if any(getattr(group, "host_resident", False) for group in groups):
        problems.append("a KV cache kept in host memory")
    specs = [layer.spec for layer in layers_of(kv_cache_config)]
    other = {type(spec).__name__ for spec in specs if not isinstance(spec, _DESCRIBED)}
    problems += [f"layers with {name}" for name in sorted(other)]
    if any(getattr(spec, "prefix_replay_tokens", 0) for spec in specs):
        problems.append("layers that replay a window after a prefix hit")
    if any(getattr(spec, "tokens_per_state", 1) not in (1, -1) for spec in specs):
        problems.append("layers with one entry for several tokens")
    return problems


def _states(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> list[str]:
    tp_size = vllm_config.parallel_config.tensor_parallel_size
    specs = [layer.spec for layer in layers_of(kv_cache_config) if is_state(layer.spec)]
    return sorted({why for spec in specs if (why := states.problem(spec, tp_size))})


def _device(vllm_config: VllmConfig) -> list[str]:
    device = current_platform.device_type
    buffer = vllm_config.kv_transfer_config.kv_buffer_device
    if device not in ("cuda", "cpu"):
        return [f"platform {device}"]
    return [] if buffer == device else [f"kv_buffer_device={buffer} on platform {device}"]
