# SPDX-License-Identifier: Apache-2.0
"""vLLM's compatibility hash, and in words what goes into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nixlpush.vllm import releases

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def backend_names(vllm_config: VllmConfig) -> str:
    """The attention backend, as vLLM's connector hashes it: where a block has the pages of all
    layers, all of them, since the stages of a pipeline may have them in another order."""
    from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

    names = [backend.get_name() for backend in get_current_attn_backends(vllm_config)]
    return ",".join(sorted({*names})) if releases.is_block_outermost(vllm_config) else names[0]


def compat_hash(vllm_config: VllmConfig, attention_backend: str) -> str:
    """The hash that a peer must have, too: vLLM's own, so that its connector is a peer."""
    # Imported late: it brings in NIXL's Python module.
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
        compute_nixl_compatibility_hash,
    )

    return compute_nixl_compatibility_hash(
        vllm_config, attention_backend, **_choices(compute_nixl_compatibility_hash)
    )


def compat_factors(vllm_config: VllmConfig, attention_backend: str) -> dict[str, str]:
    """What the hash is made from, by name, for the text that explains a mismatch."""
    from vllm import __version__
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
        NIXL_CONNECTOR_VERSION,
        compute_nixl_compatibility_hash,
    )

    model = vllm_config.model_config
    hma = not vllm_config.scheduler_config.disable_hybrid_kv_cache_manager
    speculative = vllm_config.speculative_config
    factors = {
        "vllm_version": __version__,
        "nixl_connector_version": NIXL_CONNECTOR_VERSION,
        "model": model.model,
        "dtype": model.dtype,
        "num_kv_heads": model.get_total_num_kv_heads(),
        "head_size": model.get_head_size(),
        "num_hidden_layers": model.get_total_num_hidden_layers(),
        "attn_backend_name": attention_backend,
        "cache_dtype": vllm_config.cache_config.cache_dtype,
        "is_hma_enabled": hma,
        "speculative_config": speculative.method if speculative else None,
        **_choices(compute_nixl_compatibility_hash),
    }
    return {name: str(value) for name, value in factors.items()}


def _choices(compute_hash: Callable[..., str]) -> dict[str, Any]:
    """The factors that vLLM's connector passes, as far as this release knows them."""
    return releases.accepted(compute_hash, cross_layers_blocks=False, transfer_mode="push")
