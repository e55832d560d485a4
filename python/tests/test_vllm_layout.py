# SPDX-License-Identifier: Apache-2.0
"""Cache tensors as vLLM allocates them, as regions; and geometries that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import need_vllm  # noqa: F401
import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.mamba import mamba_utils
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
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
    with pytest.raises(
        NotImplementedError,
        match=r"cannot describe the KV cache of model.layers.10.attn: .*shape",
    ):
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


WINDOW = SlidingWindowSpec(
    block_size=BLOCK_SIZE,
    num_kv_heads=4,
    head_size=64,
    dtype=torch.bfloat16,
    sliding_window=64,
)
LATENT = MLAAttentionSpec(
    block_size=BLOCK_SIZE, num_kv_heads=1, head_size=576, dtype=torch.bfloat16
)
CHUNKED = ChunkedLocalAttentionSpec(
    block_size=BLOCK_SIZE,
    num_kv_heads=4,
    head_size=64,
    dtype=torch.bfloat16,
    attention_chunk_size=64,
)
MAMBA = MambaSpec(
    block_size=BLOCK_SIZE,
    shapes=((96, 3), (4, 16, 8)),
    dtypes=(torch.bfloat16, torch.float32),
    mamba_type=MambaAttentionBackendEnum.MAMBA2,
)


def parallel(model: Path, role: str = "kv_both", **sizes: int) -> VllmConfig:
    config = vllm_config(model, kv_role=role)
    for name, size in sizes.items():
        setattr(config.parallel_config, name, size)
    return config


@pytest.mark.parametrize("specs", [(SPEC,), (WINDOW,), (SPEC, WINDOW), (LATENT,)])
def test_what_is_supported(model: Path, specs: tuple[KVCacheSpec, ...]) -> None:
    stages = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    require_supported(parallel(model, "kv_producer", **stages), cache_config(*specs))
    for role in ("kv_producer", "kv_consumer", "kv_both"):
        require_supported(parallel(model, role, tensor_parallel_size=8), cache_config(*specs))


@pytest.mark.parametrize(
    ("role", "sizes", "specs", "reason"),
    [
        (
            "kv_both",
            {"decode_context_parallel_size": 2},
            [SPEC],
            "decode_context_parallel_size=2, which deals out tokens to ranks",
        ),
        ("kv_both", {"prefill_context_parallel_size": 4}, [SPEC], "prefill_context_parallel"),
        ("kv_consumer", {"pipeline_parallel_size": 3}, [SPEC], "=3 with kv_role=kv_consumer"),
        ("kv_both", {"pipeline_parallel_size": 2}, [SPEC], "kv_role=kv_both, only kv_producer"),
        ("kv_both", {}, [SPEC] * 65, "65 groups"),
        ("kv_both", {}, [SPEC, CHUNKED], "layers with ChunkedLocalAttentionSpec"),
        ("kv_both", {}, [replace(LATENT, tokens_per_state=4)], "one entry for several tokens"),
    ],
)
def test_what_is_not_supported_is_refused_with_a_reason(
    model: Path,
    role: str,
    sizes: dict[str, int],
    specs: list[KVCacheSpec],
    reason: str,
) -> None:
    with pytest.raises(NotImplementedError, match=reason):
        require_supported(parallel(model, role, **sizes), cache_config(*specs))


@pytest.fixture
def channels_innermost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mamba_utils, "is_conv_state_dim_first", lambda: False)


def test_states_with_channels_innermost_are_refused(
    model: Path, channels_innermost: None
) -> None:
    with pytest.raises(NotImplementedError, match="set VLLM_SSM_CONV_STATE_LAYOUT=DS"):
        require_supported(vllm_config(model), cache_config(MAMBA))


def test_states_of_an_unknown_kind_are_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mamba_utils, "is_conv_state_dim_first", lambda: True)
    unknown = replace(MAMBA, mamba_type=MambaAttentionBackendEnum.LINEAR)
    with pytest.raises(NotImplementedError, match="only supports Mamba1"):
        require_supported(vllm_config(model), cache_config(unknown))


def test_all_that_is_not_supported_is_named(model: Path, channels_innermost: None) -> None:
    config = parallel(model, decode_context_parallel_size=2, prefill_context_parallel_size=2)
    config.kv_transfer_config.kv_buffer_device = "cuda"
    with pytest.raises(NotImplementedError) as caught:
        require_supported(config, cache_config(MAMBA))
    for what in ("decode_context", "prefill_context", "states", "kv_buffer_device=cuda"):
        assert what in str(caught.value)
