# SPDX-License-Identifier: Apache-2.0
"""Caches as vLLM itself groups and allocates them, and a reader that knows nothing of them
but their description: it reads memory where the formula of nixlpush.h says."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.attention.backends.flex_attention import FlexAttentionBackend
from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups, get_kv_cache_groups
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache
from vllm_harness import vllm_config

from nixlpush import ONE_STATE, Layout, Part, Region
from nixlpush.vllm import layout, releases

BACKENDS = {"CPU_ATTN": CPUAttentionBackend, "FLEX_ATTENTION": FlexAttentionBackend}


class Module(AttentionLayerBase):
    """A layer of a model, as far as the connector asks for it."""

    def __init__(self, backend: str) -> None:
        self._backend = BACKENDS[backend]

    def get_attn_backend(self) -> Any:
        return self._backend

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> Any:
        raise AssertionError("the specs are given")


class Place(NamedTuple):
    """What is somewhere: number of the layer, name and head of a component, id of a block
    and token in it."""

    layer: int
    component: str
    head: int
    block: int
    token: int


class Worker:
    """One rank's cache for layers with these specs, filled with numbers that all differ."""

    def __init__(
        self,
        model: Path,
        specs: dict[str, KVCacheSpec],
        layout_name: str = "LBHNC",
        backend: str = "FLEX_ATTENTION",
        rank: int = 0,
        tp_size: int = 1,
        pp_size: int = 1,
        kernel_block_size: int | None = None,
        memory: int = 300_000,
    ) -> None:
        config = vllm_config(model)
        config.cache_config.kv_cache_layout = layout_name
        config.parallel_config.rank = rank
        config.parallel_config.tensor_parallel_size = tp_size
        config.parallel_config.pipeline_parallel_size = pp_size
        modules = {name: Module(backend) for name in specs}
        config.compilation_config.static_forward_context.update(modules)
        groups = get_kv_cache_groups(config, specs)
        self.config = config
        self.kv_cache_config: KVCacheConfig = get_kv_cache_config_from_groups(
            config, groups, memory
        )
        sizes = [kernel_block_size or group.kv_cache_spec.block_size for group in groups]
        self.caches = allocate_kv_cache(
            self.kv_cache_config, torch.device("cpu"), KVCacheLayout[layout_name], sizes
        )
        storage = next(iter(self.caches.values())).untyped_storage()
        self.storage = storage.data_ptr(), storage.nbytes()
        self.fill(1)

    def fill(self, first: int) -> None:
        """Numbers that go up from the first one, all over the memory."""
        storage = next(iter(self.caches.values())).untyped_storage()
        words = torch.tensor([], dtype=torch.int32).set_(storage)
        words.copy_(torch.arange(first, first + len(words)))

    def describe(self) -> Layout:
        with set_current_vllm_config(self.config):
            return layout.describe(self.config, self.kv_cache_config, self.caches)

    def group_of(self, layer_name: str) -> int:
        groups = releases.transfer_groups(self.kv_cache_config)
        return next(i for i, group in enumerate(groups) if layer_name in group.layer_names)


def read(found: Layout, group: int) -> dict[Place, bytes]:
    """All elements that block ids of a group lead to."""
    elements: dict[Place, bytes] = {}
    for region in found.regions:
        if region.group == group:
            for part in region.parts:
                for place, address in _places(region, part):
                    assert place not in elements
                    rows = range(part.num_rows)
                    elements[place] = b"".join(
                        ctypes.string_at(address + row * part.row_stride, part.size)
                        for row in range(part.num_rows)
                    )
    return elements


def _places(region: Region, part: Part) -> Iterator[tuple[Place, int]]:
    tokens = 1 if region.tokens == ONE_STATE else region.tokens
    for block in range(region.num_blocks):
        for layer in range(part.num_layers):
            for head in range(part.num_heads):
                for token in range(tokens if part.token_stride else 1):
                    id_, rest = divmod(block, region.per_id)
                    place = Place(
                        part.first_layer + layer,
                        part.component,
                        part.first_head + head,
                        id_,
                        rest * tokens + token,
                    )
                    yield (
                        place,
                        (
                            region.base
                            + block * region.stride
                            + part.offset
                            + layer * part.layer_stride
                            + head * part.head_stride
                            + token * part.token_stride
                        ),
                    )


def raw(numbers: torch.Tensor) -> bytes:
    """What is in memory for some numbers of a cache."""
    return numbers.contiguous().view(torch.uint8).numpy().tobytes()
