# SPDX-License-Identifier: Apache-2.0
"""vLLM's cache tensors as regions and memory ranges, as vLLM's own connector advertises them:
one region per layer in numeric order of names, one memory range per storage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

from nixlpush.types import DRAM, VRAM, Layout, Memory, Region
from nixlpush.vllm import releases
from nixlpush.vllm.geometry import layer_specs

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


def describe(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    kv_caches: dict[str, torch.Tensor],
) -> Layout:
    """The layout of one worker's cache. Raises NotImplementedError for a tensor whose blocks
    are not contiguous."""
    backends = get_current_attn_backends(vllm_config)
    logical = releases.transfer_groups(kv_cache_config)[0].kv_cache_spec.block_size
    kernel = releases.kernel_block_size(vllm_config, kv_cache_config, backends, logical)
    ratio = logical // kernel
    num_blocks = kv_cache_config.num_blocks * ratio
    # A layer without a spec shares the cache of another one.
    specs = layer_specs(kv_cache_config)
    regions: dict[int, Region] = {}
    memory: dict[int, Memory] = {}
    device_id = 0
    for name in sorted(specs.keys() & kv_caches.keys(), key=numeric_order):
        cache = kv_caches[name]
        page = specs[name].page_size_bytes // ratio
        _require_pages(name, cache, num_blocks, page)
        device_id = 0 if cache.device.type == "cpu" else cache.get_device()
        regions.setdefault(cache.data_ptr(), _region(name, cache, num_blocks, page))
        range_ = _memory(cache, device_id)
        memory.setdefault(range_.addr, range_)
    return Layout(
        name=releases.layout_name(vllm_config),
        attention_backend=backends[0].get_name(),
        block_size=kernel,
        num_blocks=num_blocks,
        regions=list(regions.values()),
        memory=list(memory.values()),
        physical_per_logical=ratio,
        device_id=device_id,
    )


def numeric_order(layer_name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts layers.2 before layers.10."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", layer_name)
    ]


def _mem(cache: torch.Tensor) -> int:
    return DRAM if cache.device.type == "cpu" else VRAM


def _region(name: str, cache: torch.Tensor, num_blocks: int, page: int) -> Region:
    return Region(
        name=name,
        base=cache.data_ptr(),
        block_len=page,
        stride=cache.stride(0) * cache.element_size(),
        num_blocks=num_blocks,
        mem=_mem(cache),
    )


def _memory(cache: torch.Tensor, device_id: int) -> Memory:
    storage = cache.untyped_storage()
    return Memory(
        addr=storage.data_ptr(), len=storage.nbytes(), device=device_id, mem=_mem(cache)
    )


def _require_pages(name: str, cache: torch.Tensor, num_blocks: int, page: int) -> None:
    """A block, cache[i], must be one dense page, in whatever order of its dimensions."""
    dense = 1
    for size, stride in sorted(zip(cache.shape[1:], cache.stride()[1:]), key=lambda d: d[1]):
        if size > 1 and stride != dense:
            break
        dense *= size
    if cache.shape[0] < num_blocks or dense * cache.element_size() != page:
        raise NotImplementedError(
            f"NixlPushConnector of nixlpush needs blocks of {page} contiguous bytes; the KV "
            f"cache of {name} has shape {tuple(cache.shape)}, strides {cache.stride()} and "
            f"{cache.element_size()} bytes per element, for {num_blocks} blocks"
        )
