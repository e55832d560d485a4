# SPDX-License-Identifier: Apache-2.0
"""Cache tensors as vLLM allocates them, as regions; and geometries that are refused."""

from __future__ import annotations

from pathlib import Path

import need_vllm  # noqa: F401
import pytest
import torch
from vllm.config import set_current_vllm_config
from vllm.v1.kv_cache_interface import SlidingWindowSpec
from vllm_harness import (
    LAYERS,
    NUM_BLOCKS,
    attention_spec,
    cache_config,
    vllm_config,
    write_model,
)

from nixlpush import DRAM, Layout
from nixlpush.vllm import layout, releases
from nixlpush.vllm.geometry import require_supported

BLOCK_SIZE = 32  # the attention of vLLM on a CPU wants multiples of it
SPEC = attention_spec(BLOCK_SIZE)
PAGE = SPEC.page_size_bytes
SHAPE = NUM_BLOCKS, 4, BLOCK_SIZE, 128


def allocate() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """One storage for all layers, layer after layer, as vLLM does it for LBHNC."""
    storage = torch.zeros(len(LAYERS) * NUM_BLOCKS * PAGE, dtype=torch.uint8)
    views = storage.view(torch.bfloat16).view(len(LAYERS), *SHAPE)
    return storage, dict(zip(LAYERS, views))


def describe(model: Path, caches: dict[str, torch.Tensor]) -> Layout:
    config = vllm_config(model)
    with set_current_vllm_config(config):
        return layout.describe(config, cache_config(SPEC), caches)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


def test_one_region_per_layer_in_numeric_order_and_one_memory_range(model: Path) -> None:
    storage, caches = allocate()
    found = describe(model, caches)
    assert [region.name for region in found.regions] == sorted(LAYERS, reverse=True)
    for region in found.regions:
        assert region.base == caches[region.name].data_ptr()
        assert (region.block_len, region.stride) == (PAGE, PAGE)
        assert (region.num_blocks, region.group, region.mem) == (NUM_BLOCKS, 0, DRAM)
    (memory,) = found.memory
    assert (memory.addr, memory.len) == (storage.data_ptr(), storage.nbytes)
    assert (found.name, found.block_size, found.num_blocks) == (
        releases.heads_first(),
        BLOCK_SIZE,
        NUM_BLOCKS,
    )
    assert (found.physical_per_logical, found.attention_backend) == (1, "CPU_ATTN")


def test_a_page_may_be_a_permuted_view(model: Path) -> None:
    _, caches = allocate()
    permuted = {name: cache.transpose(1, 2) for name, cache in caches.items()}
    assert not permuted[LAYERS[0]][0].is_contiguous()
    expected = describe(model, caches)
    assert describe(model, permuted) == expected


def test_a_layer_that_shares_a_cache_is_no_second_region(model: Path) -> None:
    _, caches = allocate()
    shared = {**caches, "model.layers.11.attn": caches[LAYERS[0]]}
    assert len(describe(model, shared).regions) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cache: cache[: NUM_BLOCKS - 1],
        lambda cache: cache[:, :2],
        lambda cache: cache[:, :, ::2],
        lambda cache: cache.transpose(0, 1),
    ],
)
def test_a_tensor_of_another_form_is_refused(model: Path, spoil: object) -> None:
    _, caches = allocate()
    caches[LAYERS[0]] = spoil(caches[LAYERS[0]])
    with pytest.raises(NotImplementedError, match=r"model.layers.10.attn has shape"):
        describe(model, caches)


def test_names_sort_by_number() -> None:
    names = ["a.10.x", "a.2.y", "a.2.x", "b.1", "a.x"]
    assert sorted(names, key=layout.numeric_order) == [
        "a.2.x",
        "a.2.y",
        "a.10.x",
        "a.x",
        "b.1",
    ]


def test_one_group_of_full_attention_is_supported(model: Path) -> None:
    require_supported(vllm_config(model), cache_config(SPEC))


def test_all_that_is_not_supported_is_named(model: Path) -> None:
    window = SlidingWindowSpec(
        block_size=BLOCK_SIZE,
        num_kv_heads=4,
        head_size=64,
        dtype=torch.bfloat16,
        sliding_window=64,
    )
    config = vllm_config(model)
    config.parallel_config.tensor_parallel_size = 2
    config.parallel_config.pipeline_parallel_size = 3
    config.kv_transfer_config.kv_buffer_device = "cuda"
    with pytest.raises(NotImplementedError) as caught:
        require_supported(config, cache_config(SPEC, window))
    for what in (
        "tensor_parallel_size=2",
        "pipeline_parallel_size=3",
        "2 groups",
        "SlidingWindowSpec",
        "kv_buffer_device=cuda",
    ):
        assert what in str(caught.value)
