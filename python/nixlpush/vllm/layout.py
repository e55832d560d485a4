# SPDX-License-Identifier: Apache-2.0
"""vLLM's cache tensors as regions and memory ranges: a region per layer in numeric order of
names, one memory range per storage."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

from nixlpush.types import DRAM, ONE_STATE, VRAM, Layout, Memory, Region
from nixlpush.vllm import parts, releases, states, stock
from nixlpush.vllm.geometry import Layer, block_sizes, is_state, layers_of, window_of
from nixlpush.vllm.ranks import rank_of

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


def describe(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    kv_caches: dict[str, torch.Tensor | list[torch.Tensor]],
) -> Layout:
    """The layout of one worker's cache. Raises NotImplementedError, with the layer's name, for
    a tensor that is not laid out as its spec says."""
    worker = _Worker(vllm_config, kv_cache_config)
    # A layer without a spec shares the cache of another one.
    layers = [layer for layer in layers_of(kv_cache_config) if layer.name in kv_caches]
    layers.sort(key=lambda layer: numeric_order(layer.name))
    tensors = [states.joined(kv_caches[layer.name]) for layer in layers]
    regions = [worker.region(layer, tensor) for layer, tensor in zip(layers, tensors)]
    ranges = [_memory(tensor) for tensor in tensors]
    memory = {range_.addr: range_ for range_ in ranges}
    logical = math.lcm(*block_sizes(kv_cache_config))
    backends = worker.backends
    kernel = releases.kernel_block_size(vllm_config, kv_cache_config, backends, logical)
    per_id = logical // kernel
    num_blocks = kv_cache_config.num_blocks * per_id
    caches = [stock.Cache(layer, tensor) for layer, tensor in zip(layers, tensors)]
    return Layout(
        name=releases.layout_name(vllm_config),
        attention_backend=backends[0].get_name(),
        block_size=kernel,
        num_blocks=num_blocks,
        regions=regions,
        memory=list(memory.values()),
        physical_per_logical=per_id,
        device_id=max(range_.device for range_ in memory.values()),
        ssm_sizes=states.ssm_sizes([layer.spec for layer in layers], worker.rank.tp_size),
        stock=stock.regions(vllm_config, caches, num_blocks, per_id)
        if releases.dims_in_order() or _blocks_first(regions, tensors)
        else [],
    )


def numeric_order(layer_name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts layers.2 before layers.10."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", layer_name)
    ]


class _Worker:
    """What the regions of one worker have in common."""

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
        self.backends = get_current_attn_backends(vllm_config)
        self.rank = rank_of(vllm_config.parallel_config)
        self._num_blocks = kv_cache_config.num_blocks
        self._model_heads = vllm_config.model_config.get_total_num_kv_heads()
        self._modules = vllm_config.compilation_config.static_forward_context

    def region(self, layer: Layer, cache: torch.Tensor) -> Region:
        """One layer's. Raises NotImplementedError."""
        try:
            return self._region(layer, cache)
        except NotImplementedError as error:
            raise NotImplementedError(
                f"NixlPushConnector of nixlpush cannot describe the KV cache of {layer.name}: "
                f"{error}"
            ) from error

    def _region(self, layer: Layer, cache: torch.Tensor) -> Region:
        components = self._components(layer, cache)
        first = next(view for view, _ in components.values()) if components else cache
        per_id = first.shape[0] // self._num_blocks
        if first.shape[0] != max(per_id, 1) * self._num_blocks:
            raise NotImplementedError(
                f"it has shape {tuple(cache.shape)}, for {self._num_blocks} blocks"
            )
        page = layer.spec.page_size_bytes // per_id
        if not components:
            _require_page(cache, page)
        base = cache.data_ptr()
        tokens = 0 if is_state(layer.spec) else layer.spec.block_size // per_id
        return Region(
            name=layer.name,
            base=base,
            block_len=page,
            stride=first.stride(0) * first.element_size(),
            num_blocks=first.shape[0],
            group=layer.group,
            mem=_mem(cache),
            per_id=per_id,
            tokens=tokens or ONE_STATE,
            window=window_of(layer.spec),
            parts=parts.parts(components or {}, base, layer.name, tokens),
        )

    def _components(self, layer: Layer, cache: torch.Tensor) -> parts.Components | None:
        if is_state(layer.spec):
            return states.state(cache, layer.spec, self.rank)
        module = self._modules.get(layer.name)
        backend = module.get_attn_backend() if module else self.backends[0]
        return parts.attention(
            cache, layer.spec, backend.get_name(), self.rank, self._model_heads
        )


def _blocks_first(regions: list[Region], tensors: list[torch.Tensor]) -> bool:
    """Whether no layer has K and V apart outside of its blocks."""
    return all(region.num_blocks == len(tensor) for region, tensor in zip(regions, tensors))


def _mem(cache: torch.Tensor) -> int:
    return DRAM if cache.device.type == "cpu" else VRAM


def _memory(cache: torch.Tensor) -> Memory:
    storage = cache.untyped_storage()
    device = 0 if cache.device.type == "cpu" else cache.get_device()
    return Memory(storage.data_ptr(), storage.nbytes(), device, _mem(cache))


def _require_page(cache: torch.Tensor, page: int) -> None:
    """A block, cache[i], must be one dense page, in whatever order of its dimensions."""
    dense = 1
    for size, stride in sorted(zip(cache.shape[1:], cache.stride()[1:]), key=lambda d: d[1]):
        if size > 1 and stride != dense:
            break
        dense *= size
    if dense * cache.element_size() != page:
        raise NotImplementedError(
            f"blocks of {page} contiguous bytes are needed; it has shape "
            f"{tuple(cache.shape)}, strides {cache.stride()} and {cache.element_size()} bytes "
            "per number"
        )
