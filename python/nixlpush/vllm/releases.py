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
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.v1 import kv_cache_interface
from vllm.v1.worker import utils as worker_utils

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.attention.backend import AttentionBackend
    from vllm.v1.kv_cache_interface import (
        AttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheSpec,
    )


def cache_hit_source() -> Any:
    """How hits from a peer are counted; None where vLLM does not tell sources apart."""
    if importlib.util.find_spec("vllm.v1.metrics.cache_hit_source") is None:
        return None
    from vllm.v1.metrics.cache_hit_source import CacheHitSource

    return CacheHitSource.P2P


def names_failed_requests() -> bool:
    """Whether a worker can name the requests that were not received, not only their blocks."""
    return hasattr(base, "KVConnectorTransferResults")


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


def transfer_group_ids(kv_cache_config: KVCacheConfig) -> Sequence[int]:
    """The numbers of these groups among all groups."""
    if hasattr(kv_cache_config, "transfer_group_ids"):
        return kv_cache_config.transfer_group_ids
    return range(len(kv_cache_config.kv_cache_groups))


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


def is_block_outermost(vllm_config: VllmConfig) -> bool:
    """Whether a block has the pages of all layers, one after another."""
    return layout_name(vllm_config).startswith("B")


def is_latent(spec: KVCacheSpec) -> bool:
    """Whether a layer keeps what MLA does: one vector of a token for all heads."""
    names = "MLAAttentionSpec", "SlidingWindowMLASpec"
    return isinstance(spec, tuple(getattr(kv_cache_interface, n, ()) for n in names))


def is_indexer(spec: KVCacheSpec) -> bool:
    """Whether a latent is that of an indexer, where the release tells."""
    return getattr(getattr(spec, "cache_role", None), "value", None) == "indexer"


def dims_in_order() -> bool:
    """Whether tensors have the dimensions (block, head, token, content) in any layout."""
    return hasattr(CacheConfig, "get_resolved_kv_cache_layout")


def transposes_k(spec: AttentionSpec) -> bool:
    """Whether vLLM's attention on a CPU keeps K transposed in a block, and V as it is."""
    from vllm.v1.attention.backends import cpu_attn

    choose = getattr(cpu_attn, "_get_attn_isa", None)
    if choose is None or spec.dtype.itemsize < 2:
        return False
    sizes = {"block_size": spec.block_size, "head_size": spec.head_size}
    return choose(**accepted(choose, dtype=spec.dtype, **sizes)) in ("vec", "vec16")


def prefill_lookahead(vllm_config: VllmConfig) -> int:
    """Tokens at the end of a prompt that a drafter with several modules looks ahead; 1 or
    less: nothing is left to D."""
    return getattr(vllm_config, "num_prefill_lookahead_tokens", 0)


def accepted(function: Callable[..., object], **arguments: Any) -> dict[str, Any]:
    """Those of the arguments that this release's function has a parameter for."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}
