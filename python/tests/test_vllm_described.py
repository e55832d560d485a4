# SPDX-License-Identifier: Apache-2.0
"""Descriptions of caches against torch: what the formula finds at an address is what indexing
the layer's tensor by (block, head, token, content) finds."""

from __future__ import annotations

from pathlib import Path

import need_vllm  # noqa: F401
import pytest
import torch

pytest.importorskip("vllm.v1.kv_cache_layout", reason="this release allocates in another way")

from described import Place, Worker, raw, read
from vllm import _custom_ops as ops
from vllm.model_executor.layers.mamba import mamba_utils
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm_harness import write_model

from nixlpush import ONE_STATE
from nixlpush.vllm import releases

HEAD, TOKENS, MODEL_HEADS = 32, 32, 4
NAME = "model.layers.{}.self_attn.attn"
WHERE = "model.layers.*.self_attn.attn"
DTYPE = torch.float32


def full(heads: int = MODEL_HEADS, tokens: int = TOKENS) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=tokens, num_kv_heads=heads, head_size=HEAD, dtype=DTYPE
    )


def window(tokens: int = TOKENS) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=tokens,
        num_kv_heads=MODEL_HEADS,
        head_size=HEAD,
        dtype=DTYPE,
        sliding_window=48,
    )


def latent() -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=TOKENS, num_kv_heads=1, head_size=HEAD, dtype=DTYPE)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


def k_and_v(worker: Worker, first_head: int, names: list[str]) -> dict[Place, bytes]:
    """What torch finds in caches that have the K and then the V of a token in a head."""
    elements = {}
    for name in names:
        cache = worker.caches[name]
        layer = int(name.split(".")[2])
        ratio = cache.shape[0] // worker.kv_cache_config.num_blocks
        for block, head, token in torch.cartesian_prod(*map(torch.arange, cache.shape[:3])):
            content = cache[block, head, token]
            id_, rest = divmod(int(block), ratio)
            at = first_head + int(head), id_, rest * cache.shape[2] + int(token)
            elements[Place(layer, f"k of {WHERE}", *at)] = raw(content[:HEAD])
            elements[Place(layer, f"v of {WHERE}", *at)] = raw(content[HEAD:])
    return elements


@pytest.mark.parametrize("layout_name", [layout.name for layout in KVCacheLayout])
def test_each_layout(model: Path, layout_name: str) -> None:
    names = [NAME.format(i) for i in (2, 10, 3)]
    worker = Worker(model, dict.fromkeys(names, full()), layout_name)
    found = worker.describe()
    assert found.name == layout_name
    assert read(found, 0) == k_and_v(worker, 0, names)
    assert [(memory.addr, memory.len) for memory in found.memory] == [worker.storage]


@pytest.mark.parametrize("layout_name", ["LBHNC", "LBNHC", "BLHNC"])
@pytest.mark.parametrize(
    ("rank", "tp_size", "held", "first", "replicated"),
    [(1, 2, 2, 2, 1), (3, 4, 1, 3, 1), (5, 8, 1, 2, 2), (6, 2, 2, 0, 1)],
)
def test_heads_of_a_rank(
    model: Path,
    layout_name: str,
    rank: int,
    tp_size: int,
    held: int,
    first: int,
    replicated: int,
) -> None:
    names = [NAME.format(i) for i in (0, 1)]
    worker = Worker(
        model, dict.fromkeys(names, full(held)), layout_name, rank=rank, tp_size=tp_size
    )
    found = worker.describe()
    assert read(found, 0) == k_and_v(worker, first, names)
    assert {part.heads_of for region in found.regions for part in region.parts} == {
        MODEL_HEADS
    }
    assert MODEL_HEADS * replicated == held * tp_size


def test_a_number_of_heads_that_contradicts_the_model_is_refused(model: Path) -> None:
    worker = Worker(model, {NAME.format(0): full(1)}, rank=1, tp_size=2)
    with pytest.raises(NotImplementedError, match=r"layers\.0\..*holds 1 kv heads.*has 4"):
        worker.describe()


@pytest.mark.parametrize("layout_name", ["LBHNC", "LBNHC"])
def test_kernel_blocks(model: Path, layout_name: str) -> None:
    names = [NAME.format(i) for i in (0, 1)]
    worker = Worker(
        model, dict.fromkeys(names, full(tokens=64)), layout_name, kernel_block_size=16
    )
    found = worker.describe()
    assert {(region.per_id, region.tokens) for region in found.regions} == {(4, 16)}
    assert read(found, 0) == k_and_v(worker, 0, names)


@pytest.mark.parametrize("layout_name", ["LBHNC", "LBNHC", "BLHNC", "BLNHC"])
def test_groups_that_share_memory(model: Path, layout_name: str) -> None:
    """vLLM makes three groups of these, whose layers lie on each other."""
    specs = {NAME.format(i): full() if i % 3 == 2 else window() for i in range(6)}
    worker = Worker(model, specs, layout_name)
    found = worker.describe()
    assert len(worker.kv_cache_config.kv_cache_groups) == 3
    for group in range(3):
        names = [name for name in specs if worker.group_of(name) == group]
        assert len(names) == 2
        assert read(found, group) == k_and_v(worker, 0, names)
    windows = {region.group: region.window for region in found.regions}
    assert sorted(windows.values()) == [0, 48, 48]
    assert windows[worker.group_of(NAME.format(2))] == 0


def test_older_releases_tell_of_addresses_only(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that lie on each other are one region, and vLLM's connector names none."""
    specs = {NAME.format(i): full() if i % 3 == 2 else window() for i in range(6)}
    monkeypatch.setattr(releases, "dims_in_order", lambda: False)
    found = Worker(model, specs, "LBHNC").describe()
    assert [region.base for region in found.stock] == list(
        dict.fromkeys(region.base for region in found.regions)
    )
    assert len(found.stock) == 2
    assert not any(region.members for region in found.stock)


@pytest.mark.parametrize("layout_name", ["LBNHC", "BLHNC"])
def test_mla_is_the_same_on_all_ranks(model: Path, layout_name: str) -> None:
    names = [NAME.format(i) for i in (4, 5)]
    worker = Worker(model, dict.fromkeys(names, latent()), layout_name, rank=3, tp_size=4)
    found = worker.describe()
    expected = {}
    for name in names:
        cache = worker.caches[name]
        for block, token in torch.cartesian_prod(*map(torch.arange, (len(cache), TOKENS))):
            place = Place(
                int(name.split(".")[2]), f"latent of {WHERE}", 0, int(block), int(token)
            )
            expected[place] = raw(cache[block, 0, token])
    assert read(found, 0) == expected
    assert {part.heads_of for region in found.regions for part in region.parts} == {1}


def test_two_caches_of_a_layer_are_two_components(model: Path) -> None:
    names = ["model.layers.3.attn", "model.layers.3.indexer.k_cache"]
    worker = Worker(model, dict.fromkeys(names, latent()), "LBNHC")
    (attention, indexer) = (region.parts for region in worker.describe().regions)
    assert [part.component for part in attention] == ["latent of model.layers.*.attn"]
    assert [part.component for part in indexer] == ["latent of model.layers.*.indexer.k_cache"]


def test_what_a_kernel_for_cpus_writes(model: Path) -> None:
    """Plain vector instructions want K transposed: vLLM's kernel says where numbers go."""
    name = NAME.format(0)
    worker = Worker(model, {name: full()}, backend="CPU_ATTN")
    cache = worker.caches[name]
    slots = torch.randperm(len(cache) * TOKENS)
    key, value = torch.randn(2, len(slots), MODEL_HEADS, HEAD)
    pages = cache.view(len(cache), MODEL_HEADS, 2 * TOKENS, HEAD)
    ops.cpu_attn_reshape_and_cache(key, value, *pages.chunk(2, dim=2), slots, "vec")
    expected = {}
    for i, slot in enumerate(slots.tolist()):
        block, token = divmod(slot, TOKENS)
        for head in range(MODEL_HEADS):
            expected[Place(0, f"v of {WHERE}", head, block, token)] = raw(value[i, head])
            expected[Place(0, f"k of {WHERE}", head, block, token)] = raw(key[i, head])
    assert read(worker.describe(), 0) == expected


def test_other_kernels_for_cpus_move_whole_heads(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nixlpush.vllm.releases.transposes_k", lambda spec: False)
    worker = Worker(model, {NAME.format(0): full()}, backend="CPU_ATTN")
    cache = worker.caches[NAME.format(0)]
    expected = {
        Place(0, f"kv of {WHERE}", head, block, 0): raw(cache[block, head])
        for block in range(len(cache))
        for head in range(MODEL_HEADS)
    }
    assert read(worker.describe(), 0) == expected


CONV, STATE_HEADS, STATE = (64 + 2 * 16, 3), 4, (4, 16, 8)


def states(kind: MambaAttentionBackendEnum, page: int) -> MambaSpec:
    return MambaSpec(
        block_size=512,
        shapes=(CONV, STATE),
        dtypes=(torch.float16, torch.float32),
        mamba_type=kind,
        page_size_padded=page,
    )


@pytest.mark.parametrize(
    ("kind", "dims"), [("MAMBA2", (64, 16, 16)), ("GDN_ATTN", (16, 16, 64))]
)
def test_states_beside_attention(
    model: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dims: tuple[int, ...]
) -> None:
    """Channels of the convolution and heads of the temporal state, for rank 1 of 2."""
    monkeypatch.setattr(mamba_utils, "is_conv_state_dim_first", lambda: True)
    split = "vllm.distributed.kv_transfer.kv_connector.v1.ssm_conv_transfer_utils"
    monkeypatch.setattr(f"{split}.is_conv_state_dim_first", lambda: True)
    attention, mamba = full(heads=2), "model.layers.1.mixer"
    spec = states(MambaAttentionBackendEnum[kind], attention.page_size_bytes)
    specs = {NAME.format(0): attention, mamba: spec}
    worker = Worker(model, specs, rank=1, tp_size=2)
    found = worker.describe()
    assert read(found, worker.group_of(NAME.format(0))) == k_and_v(worker, 2, [NAME.format(0)])

    cache = worker.caches[mamba].view(torch.uint8).flatten(1)
    where = "model.layers.*.mixer"
    expected = {}
    for block, content in enumerate(cache):
        conv = content[: CONV[0] * CONV[1] * 2].view(CONV[0], -1)
        temporal = content[conv.numel() :][: 4 * 4 * 16 * 8].view(STATE_HEADS, -1)
        for i, rows in enumerate(conv.split(dims)):
            for channel, row in enumerate(rows):
                place = Place(1, f"conv[{i}] of {where}", dims[i] + channel, block, 0)
                expected[place] = raw(row)
        for head, row in enumerate(temporal):
            expected[Place(1, f"state of {where}", STATE_HEADS + head, block, 0)] = raw(row)
    assert read(found, worker.group_of(mamba)) == expected
    (region,) = (region for region in found.regions if region.name == mamba)
    assert (region.tokens, region.per_id) == (ONE_STATE, 1)
    assert found.ssm_sizes == (CONV[0] * CONV[1] * 2, 4 * 4 * 16 * 8)

    # Older releases of vLLM have a view of each part of a state instead.
    first = cache[:, : CONV[0] * CONV[1] * 2].view(torch.float16).unflatten(1, CONV)
    worker.caches[mamba] = [first, cache[:, first[0].nbytes :]]
    assert worker.describe() == found
