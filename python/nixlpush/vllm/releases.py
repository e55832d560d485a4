# SPDX-License-Identifier: Apache-2.0
"""What differs between releases of vLLM from 0.24 on, beyond the hooks of the base class.

Everything is found by looking at what is there, never by a version number.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vllm.config import CacheConfig
from vllm.v1.worker import utils as worker_utils

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.attention.backend import AttentionBackend
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec


def cache_hit_source() -> Any:
    """How hits from a peer are counted; None where vLLM does not tell sources apart."""
    if importlib.util.find_spec("vllm.v1.metrics.cache_hit_source") is None:
        return None
    from vllm.v1.metrics.cache_hit_source import CacheHitSource

    return CacheHitSource.P2P


def heads_first() -> str:
    """The name of the layout (block, head, token, content) with one tensor per layer."""
    return "LBHNC" if hasattr(CacheConfig, "get_resolved_kv_cache_layout") else "HND"


def layout_name(vllm_config: VllmConfig) -> str:
    """The name of the layout that vLLM has chosen for this engine."""
    cache_config = vllm_config.cache_config
    if hasattr(cache_config, "get_resolved_kv_cache_layout"):
        return cache_config.get_resolved_kv_cache_layout().name
    from vllm.v1.attention.backends.utils import get_kv_cache_layout

    return get_kv_cache_layout()


def transfer_groups(kv_cache_config: KVCacheConfig) -> Sequence[KVCacheGroupSpec]:
    """The groups of layers that are transferred: all, where none can be left out."""
    if hasattr(kv_cache_config, "transfer_groups"):
        return kv_cache_config.transfer_groups
    return kv_cache_config.kv_cache_groups


def select_block_ids(
    kv_cache_config: KVCacheConfig, block_ids: Sequence[list[int]]
) -> Sequence[list[int]]:
    """The block ids of the groups that are transferred, out of those of all groups."""
    if hasattr(kv_cache_config, "select_transfer_block_ids"):
        return kv_cache_config.select_transfer_block_ids(block_ids)
    return block_ids


def kernel_block_size(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    backends: list[type[AttentionBackend]],
    logical: int,
) -> int:
    """Tokens in a block of the attention kernel, which divide those of a logical block."""
    from vllm.distributed.kv_transfer.kv_connector import utils

    if hasattr(utils, "get_current_attn_backends_and_specs"):
        users = utils.get_current_attn_backends_and_specs(
            vllm_config, kv_cache_config, backends
        )
    else:
        users = (backends,)
    return worker_utils.select_common_block_size(logical, *users)


def prefill_lookahead(vllm_config: VllmConfig) -> int:
    """Tokens at the end of a prompt that a drafter with several modules looks ahead; 1 or
    less: nothing is left to D."""
    return getattr(vllm_config, "num_prefill_lookahead_tokens", 0)


def accepted(function: Callable[..., object], **arguments: Any) -> dict[str, Any]:
    """Those of the arguments that this release's function has a parameter for."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}
