# SPDX-License-Identifier: Apache-2.0
"""KV caches of P and D as vLLM allocates them, and what a push must make of D's."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheLayout,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.worker.utils import allocate_kv_cache
from vllm_harness import vllm_config, write_model

LAYERS = 5
HEAD_SIZE = 8
LATENT_SIZE = 48
WINDOW_BLOCKS = 2
P_BLOCKS, D_BLOCKS = 48, 41  # of a pool, without the null block one less
MOST_BLOCKS = 12


@dataclass(frozen=True)
class Geometry:
    """How P and D hold the same model. Every second layer of a hybrid has a window."""

    name: str
    p_tp: int = 1
    d_tp: int = 1
    p_pp: int = 1
    heads: int = 4  # KV heads of the whole model
    block: int = 16  # tokens of a block id
    kernel: int = 0  # tokens of a block in memory; 0: the same
    layout: str = "LBHNC"
    mla: bool = False
    hybrid: bool = False
    apart: bool = False  # groups do not share memory
    attention: str = "FLASH_ATTN"  # vLLM's name of the backend; it tells what a block holds

    def __str__(self) -> str:
        return self.name

    @property
    def per_id(self) -> int:
        """Blocks in memory that one block id stands for."""
        return self.block // self.kernel if self.kernel else 1

    @property
    def groups(self) -> list[list[int]]:
        """Layers of each group."""
        layers = list(range(LAYERS))
        return [layers[::2], layers[1::2]] if self.hybrid else [layers]

    @property
    def windows(self) -> list[int]:
        """Tokens that each group looks back; 0: all."""
        return [0, WINDOW_BLOCKS * self.block] if self.hybrid else [0]


class Lists(NamedTuple):
    """A request: block ids per group, before vLLM's scheduler clips them."""

    tokens: int
    source: list[list[int]]
    target: list[list[int]]


class RankCache:
    """The cache of one rank, allocated by vLLM, and the configuration that goes with it."""

    def __init__(
        self,
        geometry: Geometry,
        model: Path,
        engine_id: str,
        num_blocks: int,
        tp: tuple[int, int],
        pp: tuple[int, int] = (0, 1),
    ) -> None:
        self.tp_rank, self.tp_size = tp
        self.pp_rank, self.pp_size = pp
        self.config = self._configure(geometry, model, engine_id, num_blocks)
        first, end = self.config.model_config.get_layers_start_end_indices(
            self.config.parallel_config
        )
        self.layers = range(first, end)
        held = max(1, geometry.heads // self.tp_size)
        begin = self.tp_rank * geometry.heads // self.tp_size
        self.heads = range(begin, begin + held)
        self.kv_cache = self._plan(geometry)
        kernel = geometry.kernel or geometry.block
        self.caches = allocate_kv_cache(
            self.kv_cache,
            torch.device("cpu"),
            KVCacheLayout[geometry.layout],
            [kernel] * len(geometry.groups),
        )
        (storage,) = {cache.untyped_storage() for cache in self.caches.values()}
        self.bytes = np.frombuffer(
            torch.empty(0, dtype=torch.uint8).set_(storage).numpy(), dtype=np.uint8
        )

    def _configure(
        self, geometry: Geometry, model: Path, engine_id: str, num_blocks: int
    ) -> VllmConfig:
        config = vllm_config(model, engine_id=engine_id)
        config.cache_config.block_size = geometry.block
        config.cache_config.num_gpu_blocks_override = num_blocks
        config.cache_config.kv_cache_layout = geometry.layout
        parallel = config.parallel_config
        parallel.tensor_parallel_size = self.tp_size
        parallel.pipeline_parallel_size = self.pp_size
        parallel.world_size = self.tp_size * self.pp_size
        parallel.rank = self.pp_rank * self.tp_size + self.tp_rank
        return config

    def _plan(self, geometry: Geometry) -> KVCacheConfig:
        groups = [
            KVCacheGroupSpec(
                [layer_name(layer) for layer in layers if layer in self.layers],
                _spec(geometry, window, len(self.heads)),
            )
            for layers, window in zip(geometry.groups, geometry.windows)
        ]
        plan = get_kv_cache_config_from_groups(self.config, groups, 0)
        if geometry.apart:
            size = 0
            for tensor in plan.kv_cache_tensors:
                tensor.offset = size
                size += tensor.layer_stride * len(tensor.layers)
            for tensor in plan.kv_cache_tensors:
                tensor.size = size
        return plan

    def cells(self, layer: int) -> torch.Tensor:
        """The layer as [block, head, token, content], bit by bit comparable."""
        return self.caches[layer_name(layer)].view(torch.int16)

    @property
    def base(self) -> int:
        return self.bytes.ctypes.data


def layer_name(layer: int) -> str:
    return f"model.layers.{layer}.self_attn.attn"


def write_config(folder: Path, geometry: Geometry) -> Path:
    """A model of that geometry; nothing here needs weights."""
    model = write_model(folder)
    config = json.loads((model / "config.json").read_text())
    config |= {"num_hidden_layers": LAYERS, "head_dim": HEAD_SIZE}
    config |= {"num_key_value_heads": geometry.heads}
    if geometry.mla:
        config |= {
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "num_key_value_heads": config["num_attention_heads"],
            "kv_lora_rank": LATENT_SIZE - 16,
            "q_lora_rank": None,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
        }
    (model / "config.json").write_text(json.dumps(config))
    return model


def _spec(geometry: Geometry, window: int, heads: int) -> Any:
    common = {"block_size": geometry.block, "dtype": torch.bfloat16, "num_kv_heads": heads}
    if geometry.mla:
        return MLAAttentionSpec(head_size=LATENT_SIZE, **common)
    if window:
        return SlidingWindowSpec(head_size=HEAD_SIZE, sliding_window=window, **common)
    return FullAttentionSpec(head_size=HEAD_SIZE, **common)


def fill(ranks: list[RankCache], geometry: Geometry, seed: int) -> None:
    """Random bytes, the same wherever ranks hold the same head of the same layer."""
    generator = torch.Generator().manual_seed(seed)
    for layer in range(LAYERS):
        holders = [rank for rank in ranks if layer in rank.layers]
        blocks, _, tokens, content = holders[0].cells(layer).shape
        shape = blocks, geometry.heads, tokens, content
        values = torch.randint(-(2**15), 2**15, shape, generator=generator, dtype=torch.int16)
        for rank in holders:
            rank.cells(layer).copy_(values[:, list(rank.heads)])


def move(
    geometry: Geometry,
    sources: list[RankCache],
    target: RankCache,
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    """What a push means, head by head: `pairs` are blocks of P and of D, by group."""
    for layers, (theirs, ours) in zip(geometry.groups, pairs):
        for layer in layers:
            for head in target.heads:
                source = next(s for s in sources if layer in s.layers and head in s.heads)
                values = source.cells(layer).numpy()[theirs, head - source.heads[0]]
                target.cells(layer).numpy()[ours, head - target.heads[0]] = values


def draw(geometry: Geometry, rng: random.Random) -> Lists:
    """Block ids of a request: its blocks before a window are the null block 0 on P and absent
    on D, and D has a prefix of any length already."""
    tokens = rng.randint(1, MOST_BLOCKS * geometry.block)
    count = ceil(tokens / geometry.block)
    hit = rng.choice([0, rng.randrange(count)])
    source_ids, target_ids = _ids(rng, P_BLOCKS), _ids(rng, D_BLOCKS)
    source, target = [], []
    for window in geometry.windows:
        past = max(0, tokens - window + 1) // geometry.block if window else 0
        past = min(past, count - 1)
        source.append([0] * past + [next(source_ids) for _ in range(count - past)])
        kept = count - max(hit, past - rng.randint(0, 1) if past else 0)
        target.append([next(target_ids) for _ in range(kept)])
    return Lists(tokens, source, target)


def _ids(rng: random.Random, num_blocks: int) -> Any:
    """All ids of a pool in an order that its free list could have."""
    ids = list(range(1, num_blocks))
    start = rng.randrange(len(ids))
    ids = ids[start:] + ids[:start]
    style = rng.choice(["rising", "falling", "pieces", "scattered"])
    if style == "falling":
        ids.reverse()
    elif style == "scattered":
        rng.shuffle(ids)
    elif style == "pieces":
        pieces = []
        while ids:
            length = rng.randint(1, 6)
            pieces.append(ids[:length][:: rng.choice([1, -1])])
            ids = ids[length:]
        rng.shuffle(pieces)
        ids = [i for piece in pieces for i in piece]
    return iter(ids)
