# SPDX-License-Identifier: Apache-2.0
"""KV caches of P and D as vLLM allocates them, and what a push must make of D's."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import tee
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheLayout,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from vllm.v1.worker.utils import allocate_kv_cache
from vllm_harness import vllm_config, write_model

LAYERS = 5
HEAD_SIZE = 8
LATENT_SIZE = 48
INDEX_SIZE = 24
STATE_TOKENS = 512
STATE_EVERY = 4  # block ids that are multiples of it are for states
# Elements of the convolution's x, B and C and of the temporal state, and bytes of each.
STATE_PIECES = [(16, 6), (8, 6), (8, 6), (4, 128)]
WINDOW_BLOCKS = 2
P_BLOCKS, D_BLOCKS = 48, 41  # of a pool, without the null block one less
MOST_BLOCKS = 12


@dataclass(frozen=True)
class Geometry:
    """How P and D hold the same model. Every second layer of a hybrid has a window, or is one
    with states."""

    name: str
    p_tp: int = 1
    d_tp: int = 1
    p_pp: int = 1
    heads: int = 4  # KV heads of the whole model
    block: int = 16  # tokens of a block id
    kernel: int = 0  # tokens of a block in memory; 0: the same
    layout: str = "LBHNC"
    mla: bool = False
    indexer: bool = False  # beside each latent, with pages of its own size
    hybrid: bool = False
    states: bool = False
    states_first: bool = False  # in the model's first layer
    window_heads: int = 0  # of layers with a window; 0: as the others
    apart: bool = False  # groups do not share memory
    attention: str = "FLASH_ATTN"  # vLLM's name of the backend; it tells what a block holds

    def __str__(self) -> str:
        return self.name

    @property
    def per_id(self) -> int:
        """Blocks in memory that one block id stands for."""
        return self.block // self.kernel if self.kernel else 1

    @property
    def groups(self) -> list[list[Cached]]:
        """What the layers of each group keep."""
        attention = "latent" if self.mla else "attention"
        second = "states" if self.states else "window"
        first, others = range(0, LAYERS, 2), range(1, LAYERS, 2)
        if not self.hybrid and not self.states:
            first, others = range(LAYERS), range(0)
        if self.states_first:
            first, others = others, first
        groups = [
            [Cached(layer, attention) for layer in first],
            [Cached(layer, second) for layer in others],
        ]
        if self.indexer:
            groups[0] += [Cached(layer, "indexer") for layer in first]
        return [group for group in groups if group]

    def heads_of(self, kind: str) -> int:
        """Heads of such a layer in the whole model."""
        if self.mla:
            return 1
        return self.window_heads or self.heads if kind == "window" else self.heads

    @property
    def windows(self) -> list[int]:
        """Tokens that each group looks back; 0: all."""
        return [0, WINDOW_BLOCKS * self.block] if self.hybrid else [0] * len(self.groups)


class Cached(NamedTuple):
    """What one layer keeps of a request: attention, window, latent, indexer or states."""

    layer: int
    kind: str

    @property
    def name(self) -> str:
        last = {"indexer": "indexer.k_cache", "states": "mixer"}.get(self.kind, "self_attn.attn")
        return f"model.layers.{self.layer}.{last}"


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
        self._geometry = geometry
        self.tp_rank, self.tp_size = tp
        self.pp_rank, self.pp_size = pp
        self.config = self._configure(geometry, model, engine_id, num_blocks)
        first, end = self.config.model_config.get_layers_start_end_indices(
            self.config.parallel_config
        )
        self.layers = range(first, end)
        self.kv_cache = self._plan(geometry)
        kernel = geometry.kernel or geometry.block
        self.caches = allocate_kv_cache(
            self.kv_cache,
            torch.device("cpu"),
            KVCacheLayout[geometry.layout],
            [
                STATE_TOKENS if group[0].kind == "states" else kernel
                for group in geometry.groups
            ],
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
        groups = [self._group(geometry, group) for group in geometry.groups]
        plan = get_kv_cache_config_from_groups(self.config, groups, 0)
        if geometry.apart:
            size = 0
            for tensor in plan.kv_cache_tensors:
                tensor.offset = size
                size += tensor.layer_stride * len(tensor.layers)
            for tensor in plan.kv_cache_tensors:
                tensor.size = size
        return plan

    def _group(self, geometry: Geometry, group: list[Cached]) -> KVCacheGroupSpec:
        specs = {
            cached.name: _spec(geometry, cached.kind, self.tp_size)
            for cached in group
            if cached.layer in self.layers
        }
        kinds = {cached.kind for cached in group}
        spec = (
            UniformTypeKVCacheSpecs(block_size=geometry.block, kv_cache_specs=specs)
            if len(kinds) > 1
            else _spec(geometry, *kinds, self.tp_size)
        )
        return KVCacheGroupSpec(list(specs), spec)

    def elements(self, cached: Cached) -> dict[Hashable, np.ndarray]:
        """What the layer keeps in each block in memory, by what tensor parallelism deals out:
        heads, or channels and heads of a state, numbered as in the whole model."""
        if cached.layer not in self.layers:
            return {}
        cache = self.caches[cached.name]
        if cached.kind == "states":
            return self._states(cache.view(torch.uint8).numpy().reshape(len(cache), -1))
        first = self.tp_rank * self._geometry.heads_of(cached.kind) // self.tp_size
        values = cache.view(torch.int16).numpy()
        return {first + i: values[:, i] for i in range(cache.shape[1])}

    def _states(self, blocks: np.ndarray) -> dict[Hashable, np.ndarray]:
        elements: dict[Hashable, np.ndarray] = {}
        offset = 0
        for piece, (total, size) in enumerate(STATE_PIECES):
            count = total // self.tp_size
            for i in range(count):
                element = blocks[:, offset : offset + size]
                elements[piece, self.tp_rank * count + i] = element
                offset += size
        return elements

    @property
    def base(self) -> int:
        return self.bytes.ctypes.data


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


def _spec(geometry: Geometry, kind: str, tp: int) -> Any:
    common = {
        "block_size": geometry.block,
        "dtype": torch.bfloat16,
        "num_kv_heads": max(1, geometry.heads_of(kind) // tp),
        "head_size": LATENT_SIZE if geometry.mla else HEAD_SIZE,
    }
    match kind:
        case "latent":
            return MLAAttentionSpec(**common)
        case "indexer":
            return MLAAttentionSpec(**common | {"head_size": INDEX_SIZE})
        case "window":
            spec = SlidingWindowMLASpec if geometry.mla else SlidingWindowSpec
            return spec(sliding_window=geometry.windows[1], **common)
        case "states":
            return _states(_spec(geometry, geometry.groups[0][0].kind, tp), tp)
    return FullAttentionSpec(**common)


def _states(beside: Any, tp: int) -> MambaSpec:
    """States in pages as large as those of the attention beside them."""
    (x, row), (b, _), (c, _), (heads, state) = STATE_PIECES
    return MambaSpec(
        block_size=STATE_TOKENS,
        shapes=(((x + b + c) // tp, row // 2), (heads // tp, 4, state // 16)),
        dtypes=(torch.bfloat16, torch.float32),
        mamba_type=MambaAttentionBackendEnum.MAMBA2,
        page_size_padded=beside.page_size_bytes,
    )


def fill(ranks: list[RankCache], geometry: Geometry, seed: int) -> None:
    """Random bytes, the same wherever ranks hold the same. Blocks of states are among those of
    tokens, which are their own."""
    for group in geometry.groups:
        for cached in group:
            for rank in ranks:
                for key, element in rank.elements(cached).items():
                    generator = np.random.default_rng(crc32(repr((seed, cached, key)).encode()))
                    limits = np.iinfo(element.dtype)
                    values = generator.integers(
                        limits.min, limits.max, element.shape, element.dtype, endpoint=True
                    )
                    of_kind = slice(None, None, STATE_EVERY if cached.kind == "states" else 1)
                    element[of_kind] = values[of_kind]


def move(
    geometry: Geometry,
    sources: list[RankCache],
    target: RankCache,
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    """What a push means, element by element: `pairs` are block ids of P and of D, by group."""
    for group, ids in zip(geometry.groups, pairs):
        for cached in group:
            theirs, ours = (_in_memory(geometry, cached, its) for its in ids)
            for key, element in target.elements(cached).items():
                holders = [elements for s in sources if key in (elements := s.elements(cached))]
                element[ours] = holders[0][key][theirs]


def mark_slack(geometry: Geometry, target: RankCache, ids: list[list[int]]) -> None:
    """Leaves 0 in all of the target but what blocks of a group's ids have where only other
    groups have layers: what is written there is nobody's."""
    target.bytes[:] = 0
    for group, its in zip(geometry.groups, ids):
        others = [cached for other in geometry.groups for cached in other if other != group]
        for value, layers in ((-1, others), (0, group)):
            for cached in layers:
                for element in target.elements(cached).values():
                    element[_in_memory(geometry, cached, its)] = np.array(value).astype(
                        element.dtype
                    )


def _in_memory(geometry: Geometry, cached: Cached, ids: list[int]) -> list[int]:
    """The blocks in memory that these block ids stand for."""
    per_id = 1 if cached.kind == "states" else geometry.per_id
    return [i * per_id + k for i in ids for k in range(per_id)]


def draw(geometry: Geometry, rng: random.Random) -> Lists:
    """Block ids of a request: its blocks before a window are the null block 0 on P and absent
    on D, and D has a prefix of any length already."""
    tokens = rng.randint(1, MOST_BLOCKS * geometry.block)
    count = ceil(tokens / geometry.block)
    hit = rng.choice([0, rng.randrange(count)])
    source_ids, target_ids = _ids(rng, P_BLOCKS), _ids(rng, D_BLOCKS)
    if geometry.states:
        source_ids, source_states = _part(source_ids)
        target_ids, target_states = _part(target_ids)
    source, target = [], []
    for group, window in zip(geometry.groups, geometry.windows):
        if group[0].kind == "states":
            source.append([next(source_states)])
            target.append([next(target_states)])
            continue
        past = max(0, tokens - window + 1) // geometry.block if window else 0
        past = min(past, count - 1)
        source.append([0] * past + [next(source_ids) for _ in range(count - past)])
        kept = count - max(hit, past - rng.randint(0, 1) if past else 0)
        target.append([next(target_ids) for _ in range(kept)])
    return Lists(tokens, source, target)


def _part(ids: Iterator[int]) -> tuple[Iterator[int], Iterator[int]]:
    """Ids for tokens and ids for states."""
    ids, others = tee(ids)
    return (i for i in ids if i % STATE_EVERY), (i for i in others if i % STATE_EVERY == 0)


def _ids(rng: random.Random, num_blocks: int) -> Iterator[int]:
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
