# SPDX-License-Identifier: Apache-2.0
"""The cache as vLLM's own connector cuts it into regions: what peers that run it pair with
theirs by order and name. The rules are those of vLLM 0.32; releases with one layout per layer
follow the same ones, without names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from vllm.v1.kv_cache_interface import FullAttentionSpec

from nixlpush.types import DRAM, VRAM, Member, StockRegion
from nixlpush.vllm import releases
from nixlpush.vllm.geometry import Layer, is_state

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig

_SHARED = -1  # the group of a region that several groups share


class Cache(NamedTuple):
    """A layer and its tensor."""

    layer: Layer
    tensor: torch.Tensor


class Blocks(NamedTuple):
    """Blocks at an address, so far apart; bytes all."""

    base: int
    len: int
    stride: int


def regions(
    vllm_config: VllmConfig, caches: list[Cache], num_blocks: int, per_id: int
) -> list[StockRegion]:
    """Those of a worker's layers, which are in numeric order of their names. A block id stands
    for per_id of num_blocks blocks in memory."""
    cut = _Cut(vllm_config, caches, num_blocks, per_id)
    for cache in caches:
        cut.add(cache)
    return cut.done


@dataclass
class _Cut:
    """Layers at one address are one region, the first one's; the later ones are members."""

    vllm_config: VllmConfig
    caches: list[Cache]
    num_blocks: int
    per_id: int
    done: list[StockRegion] = field(default_factory=list)

    def __post_init__(self) -> None:
        specs = [layer.spec for layer, _ in self.caches]
        hybrid = any(not isinstance(spec, FullAttentionSpec) for spec in specs)
        hybrid &= not self.vllm_config.scheduler_config.disable_hybrid_kv_cache_manager
        rows = releases.is_block_outermost(self.vllm_config)
        self._names_members = (hybrid or rows) and not any(map(is_state, specs))
        # Older releases know regions by order only.
        self._names_members &= releases.dims_in_order()
        stages = self.vllm_config.parallel_config.pipeline_parallel_size > 1
        self._by_layer = rows and self._names_members and stages
        self._pages = rows and self._names_members and _share_rows(self.caches)

    def add(self, cache: Cache) -> None:
        for blocks in self._blocks(cache):
            self._put(cache, blocks)

    def _put(self, cache: Cache, blocks: Blocks) -> None:
        (name, spec, group), tensor = cache
        region = StockRegion(
            name=name,
            base=blocks.base,
            block_len=blocks.len,
            stride=blocks.stride,
            num_blocks=self.num_blocks,
            group=group,
            mem=DRAM if tensor.device.type == "cpu" else VRAM,
            members=self._members(cache, blocks),
        )
        bases = [other.base for other in self.done]
        if self._by_layer or region.base not in bases:
            self.done.append(region)
            return
        at = bases.index(region.base)
        first = self.done[at]
        if not releases.is_latent(spec):  # the first one's blocks count, or the last latent's
            region = replace(region, block_len=first.block_len, stride=first.stride)
        self.done[at] = replace(
            region,
            name=first.name,
            group=group if first.group == group else _SHARED,
            members=[*first.members, *region.members],
        )

    def _members(self, cache: Cache, blocks: Blocks) -> list[Member]:
        if not self._names_members:
            return []
        layer, tensor = cache
        if not self._has_page_in_row(cache) or self._by_layer:
            return [Member(layer.name)]
        return [Member(layer.name, tensor.data_ptr() - blocks.base, self._page(layer))]

    def _page(self, layer: Layer) -> int:
        """Bytes of a layer in a block."""
        return layer.spec.page_size_bytes // self.per_id

    def _blocks(self, cache: Cache) -> Iterable[Blocks]:
        layer, tensor = cache
        page, base = self._page(layer), tensor.data_ptr()
        if is_state(layer.spec):
            return [Blocks(base, page, page)]
        stride = tensor.stride(0) * tensor.element_size()
        own = Blocks(base, page, stride)
        row = Blocks(tensor.untyped_storage().data_ptr(), stride, stride)
        if self._has_page_in_row(cache):
            return [own if self._by_layer else row]
        if self._is_row(cache):
            contiguous = tensor[0].is_contiguous() and tensor[0].nbytes == page
            return [own if contiguous else row]
        segments = tensor.nbytes // (self.num_blocks * stride)  # heads outside of blocks
        if segments < 2:
            return [own]
        apart = self.num_blocks * stride
        return [Blocks(base + i * apart, stride, stride) for i in range(segments)]

    def _is_row(self, cache: Cache) -> bool:
        """Whether the layer's blocks reach through the whole storage, so that all that shares
        it lies within the same blocks."""
        stride = cache.tensor.stride(0) * cache.tensor.element_size()
        slack = cache.tensor.untyped_storage().nbytes() - self.num_blocks * stride
        return 0 <= slack < stride

    def _has_page_in_row(self, cache: Cache) -> bool:
        """Whether vLLM's connector tells where the layer's page lies in a block."""
        return self._pages and releases.is_latent(cache.layer.spec) and self._is_row(cache)


def _share_rows(caches: list[Cache]) -> bool:
    tensors = [tensor for _, tensor in caches]
    strides = {tensor.stride(0) * tensor.element_size() for tensor in tensors}
    return len(strides) == len({t.untyped_storage().data_ptr() for t in tensors}) == 1
