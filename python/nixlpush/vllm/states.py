# SPDX-License-Identifier: Apache-2.0
"""What is in a block of a Mamba or linear-attention layer: one state of a request, the
convolution's and then the temporal one, over channels and heads that ranks share."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

import torch
from vllm.v1.kv_cache_interface import MambaSpec

from nixlpush.vllm.parts import Components
from nixlpush.vllm.ranks import Heads, Rank

if TYPE_CHECKING:
    from vllm.distributed.kv_transfer.kv_connector.v1.ssm_conv_transfer_utils import (
        MambaConvSplitInfo,
    )
    from vllm.v1.kv_cache_interface import KVCacheSpec


def problem(spec: MambaSpec, tp_size: int) -> str | None:
    """Why a state cannot be described, if so."""
    from vllm.model_executor.layers.mamba import mamba_utils

    if getattr(spec, "tp_replicated", False):
        return None
    if not mamba_utils.is_conv_state_dim_first():
        return "convolution states with channels innermost; set VLLM_SSM_CONV_STATE_LAYOUT=DS"
    try:
        _split(spec, tp_size)
    except (AssertionError, NotImplementedError) as error:
        return f"states of {spec.mamba_type}: {error}"
    return None


def ssm_sizes(specs: Iterable[KVCacheSpec], tp_size: int) -> tuple[int, int]:
    """Bytes of a rank's convolution and temporal state, which is the same in all layers; 0
    without states."""
    for spec in specs:
        if isinstance(spec, MambaSpec) and not getattr(spec, "tp_replicated", False):
            return _split(spec, tp_size).ssm_sizes
    return 0, 0


def joined(cache: torch.Tensor | list[torch.Tensor]) -> torch.Tensor:
    """A layer's cache as one tensor. Older releases have a view of each part of a state; the
    first begins the block."""
    if isinstance(cache, torch.Tensor):
        return cache
    first = cache[0].view(torch.uint8)
    return first.as_strided((first.shape[0], first.stride(0)), (first.stride(0), 1))


def state(cache: torch.Tensor, spec: MambaSpec, rank: Rank) -> Components:
    """The components of a layer, as nixlpush.vllm.parts has them, with a single token.
    Channels and heads are dealt out evenly."""
    if not isinstance(cache, torch.Tensor) or cache.ndim < 2:
        raise NotImplementedError("states that are not one tensor with a row for each block")
    if getattr(spec, "tp_replicated", False):
        return {"state": (_rows(cache, 0, 1, spec.state_content_size_bytes), Heads(0, 1, 1))}
    split = _split(spec, rank.tp_size)
    components, offset = {}, 0
    row = split.conv_rows * split.conv_dtype_size
    pieces = [(f"conv[{i}]", dim, row) for i, dim in enumerate(split.local_proj_dims)]
    heads = spec.shapes[1][0]
    pieces.append(("state", heads, split.ssm_sizes[1] // heads))
    for name, count, size in pieces:
        held = Heads(rank.tp_rank * count, count, rank.tp_size * count)
        components[name] = _rows(cache, offset, count, size), held
        offset += count * size
    if offset != _bytes(spec):
        raise NotImplementedError(f"a state of {_bytes(spec)} bytes, {offset} of them known")
    return components


def _rows(cache: torch.Tensor, offset: int, count: int, size: int) -> torch.Tensor:
    """count elements of size bytes in each block, from an offset on."""
    flat = cache.view(torch.uint8) if cache.dtype != torch.uint8 else cache
    return torch.as_strided(
        flat,
        (cache.shape[0], count, 1, size),
        (flat.stride(0), size, size, 1),
        flat.storage_offset() + offset,
    )


def _split(spec: MambaSpec, tp_size: int) -> MambaConvSplitInfo:
    # Imported late: only models with states need it, and not every release has it.
    from vllm.distributed.kv_transfer.kv_connector.v1 import ssm_conv_transfer_utils

    return ssm_conv_transfer_utils.derive_mamba_conv_split(spec, tp_size)


def _bytes(spec: MambaSpec) -> int:
    return sum(prod(s) * d.itemsize for s, d in zip(spec.shapes, spec.dtypes))
