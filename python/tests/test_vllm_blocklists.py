# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a request are told to the other side: those that vLLM's connector tells."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import need_vllm  # noqa: F401
import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import push_scheduler
from vllm.v1.kv_cache_interface import MambaSpec, SlidingWindowSpec, UniformTypeKVCacheSpecs
from vllm.v1.request import RequestStatus
from vllm_harness import BLOCK_SIZE, attention_spec, cache_config, vllm_config, write_model

from nixlpush import unpack_ids
from nixlpush.vllm import settings
from nixlpush.vllm.blocklists import BlockLists
from nixlpush.vllm.scheduler import PushScheduler

FULL = attention_spec()
WINDOW = SlidingWindowSpec(
    block_size=BLOCK_SIZE,
    num_kv_heads=4,
    head_size=64,
    dtype=torch.bfloat16,
    sliding_window=40,
)
STATE = MambaSpec(
    block_size=512, shapes=((4, 3),), dtypes=(torch.float32,), num_speculative_blocks=2
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


@pytest.mark.parametrize(
    "specs",
    [
        (FULL,),
        (WINDOW,),
        (FULL, WINDOW, WINDOW),
        (STATE, FULL),
        (FULL, replace(WINDOW, block_size=32)),
    ],
)
def test_lists_are_cut_as_vllms_connector_cuts_them(
    model: Path, specs: tuple[Any, ...]
) -> None:
    config, cache = vllm_config(model), cache_config(*specs)
    stock = push_scheduler.NixlPushConnectorScheduler(config, "engine-X", cache)
    ours = BlockLists(cache)
    seeded = random.Random(1)
    for _ in range(200):
        ids = tuple(seeded.sample(range(100), seeded.randrange(9)) for _ in specs)
        assert ours.of(ids) == tuple(stock.get_exchange_clipped_blocks(ids))


def test_layers_of_several_sizes_in_a_group_have_one_window() -> None:
    wide = replace(WINDOW, head_size=128)
    both = UniformTypeKVCacheSpecs(BLOCK_SIZE, {"a": WINDOW, "b": wide})
    assert BlockLists(cache_config(both)).of(([1, 2, 3, 4, 5, 6],)) == ([3, 4, 5, 6],)


def test_p_offers_the_ends_of_its_lists_and_all_tokens(model: Path) -> None:
    config = vllm_config(model)
    config.parallel_config.tensor_parallel_size = 4
    config.parallel_config.pipeline_parallel_size = 2
    scheduler = PushScheduler(settings.read(config), config, cache_config(FULL, WINDOW))
    lists = [1, 2, 3, 4, 5, 6, 7], [0, 0, 13, 14, 15, 16, 17]
    request = SimpleNamespace(
        request_id="p",
        kv_transfer_params={"do_remote_decode": True},
        num_computed_tokens=100,
        status=RequestStatus.FINISHED_LENGTH_CAPPED,
    )
    hold, params = scheduler.request_finished(request, lists)
    (offer,) = scheduler.build_connector_meta().offers
    assert hold
    assert unpack_ids(offer.block_ids) == [1, 2, 3, 4, 5, 6, 7, 14, 15, 16, 17]
    assert unpack_ids(offer.block_counts) == [7, 4]
    assert offer.tokens == params["remote_num_tokens"] == 100
    assert params["remote_block_ids"] == (lists[0], [14, 15, 16, 17])
    assert (params["tp_size"], params["pp_size"]) == (4, 2)


def test_a_group_without_blocks_to_receive_has_an_empty_list(model: Path) -> None:
    """D has all of one group cached and nothing of the other."""
    config = vllm_config(model)
    scheduler = PushScheduler(settings.read(config), config, cache_config(FULL, WINDOW))
    blocks = SimpleNamespace(get_unhashed_block_ids_all_groups=lambda: [[], [7, 8]])
    assert [unpack_ids(packed) for packed in scheduler._missing_blocks(blocks)] == [
        [7, 8],
        [0, 2],
    ]


def test_the_last_token_of_a_prompt_is_left_to_d_if_there_are_states(model: Path) -> None:
    config = vllm_config(model)
    scheduler = PushScheduler(settings.read(config), config, cache_config(FULL, STATE))
    prompt = SimpleNamespace(
        kv_transfer_params={"do_remote_prefill": True}, prompt_token_ids=list(range(50))
    )
    assert scheduler.get_num_new_matched_tokens(prompt, 16) == (33, True)
    assert BlockLists(cache_config(FULL, STATE)).of(([1], [4, 5, 6, 7])) == ([1], [5])
