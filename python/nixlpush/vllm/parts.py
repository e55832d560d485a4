# SPDX-License-Identifier: Apache-2.0
"""What is in a block of an attention layer's cache.

A component is a view (block, head, token, content) of the layer's tensor. Where its elements
lie follows from the view's strides, so a layout needs no name here. What is one element for
all tokens of a block has a single token in its view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nixlpush.types import Part
from nixlpush.vllm import releases
from nixlpush.vllm.ranks import Heads, Rank, dealt, kv_heads

if TYPE_CHECKING:
    import torch
    from vllm.v1.kv_cache_interface import AttentionSpec

# Backends that read (head, token) of the tensor as the token's K, then its V. The others are
# known by the spec they publish or by their name, or nothing is said about their blocks.
_K_THEN_V = frozenset(
    {
        "FLASH_ATTN",
        "FLASH_ATTN_DIFFKV",
        "FLASHINFER",
        "FLEX_ATTENTION",
        "HPC_ATTN",
        "ROCM_AITER_UNIFIED_ATTN",
        "TRITON_ATTN",
        "TRITON_ATTN_DIFFKV",
        "TURBOQUANT",
        "ULTRAQUANT",
    }
)
# Content of a latent that is known to be a token's own; else scales may lie at a block's end.
_FP8_DS_MLA = 656

Components = dict[str, tuple["torch.Tensor", Heads]]


def attention(
    cache: torch.Tensor, spec: AttentionSpec, backend: str, rank: Rank, model_heads: int
) -> Components | None:
    """The components of a layer by name, each with the heads that this rank holds; None if
    it is not known how the backend uses its blocks.

    cache: (block, head, token, content), or with K and V apart in its first or second
    dimension. Raises NotImplementedError if the tensor does not fit the spec.
    """
    if releases.is_latent(spec):
        return _latent(cache if cache.ndim == 4 else cache.unsqueeze(1), spec, backend)
    heads = kv_heads(rank, spec.num_kv_heads, model_heads)
    if cache.ndim == 5:
        return {name: (view, heads) for name, view in _apart(cache, spec).items()}
    slots = getattr(spec, "num_head_slots", None) or spec.num_kv_heads
    if not releases.dims_in_order():
        if cache.shape[1] == cache.shape[2]:
            return None
        cache = cache if cache.shape[1] == slots else cache.transpose(1, 2)
    if slots != spec.num_kv_heads:
        return _slots(cache, spec, heads, rank)
    if getattr(spec, "state_content_bytes", None) is not None:
        return {"kv": (cache, heads)} if backend in _K_THEN_V else None
    _require_content(cache, spec)
    if backend == "CPU_ATTN":
        return {name: (view, heads) for name, view in _cpu(cache, spec).items()}
    if backend not in _K_THEN_V:
        return None
    k, v = cache[..., : spec.head_size], cache[..., spec.head_size :]
    return {"k": (k, heads), "v": (v, heads)}


def parts(components: Components, base: int, layer_name: str, tokens: int) -> list[Part]:
    """The parts of a layer in blocks of so many tokens, 0 if a block is one state; block 0 is
    at address base."""
    layer, where = layer_of(layer_name)
    return [
        _part(f"{name} of {where}", view, heads, base, layer, tokens)
        for name, (view, heads) in components.items()
    ]


def layer_of(name: str) -> tuple[int, str]:
    """The layer's number in the model, and its name without it: what several caches of a
    layer differ by, e.g. an indexer's from its attention's."""
    words = name.split(".")
    at = next((i for i, word in enumerate(words) if word.isdecimal()), None)
    if at is None:
        return 0, name
    return int(words[at]), ".".join([*words[:at], "*", *words[at + 1 :]])


def whole(cache: torch.Tensor) -> torch.Tensor:
    """What a head has in a block as one element. Raises NotImplementedError if something
    else lies in between."""
    try:
        return cache.view(*cache.shape[:2], 1, -1)
    except RuntimeError:
        raise NotImplementedError(
            f"blocks of shape {tuple(cache.shape[1:])}, strides {cache.stride()[1:]}, can "
            "only be moved as a whole, and are not contiguous"
        ) from None


def _part(
    component: str, view: torch.Tensor, heads: Heads, base: int, layer: int, tokens: int
) -> Part:
    _, count, states, content = view.shape
    if count != heads.count or states not in (1, tokens):
        raise NotImplementedError(
            f"{component}: shape {tuple(view.shape)}, strides {view.stride()}, with "
            f"{heads.count} heads and {tokens} tokens in a block"
        )
    size = view.element_size()
    rows = 1 if content == 1 or view.stride(3) == 1 else content
    return Part(
        component=component,
        offset=view.data_ptr() - base,
        size=content // rows * size,
        first_layer=layer,
        first_head=heads.first,
        num_heads=count,
        heads_of=heads.of,
        num_rows=rows,
        row_stride=view.stride(3) * size,
        head_stride=view.stride(1) * size,
        token_stride=view.stride(2) * size if states == tokens else 0,
    )


def _latent(cache: torch.Tensor, spec: AttentionSpec, backend: str) -> Components:
    """MLA: every rank holds the same. The caches of indexers, and of a few models, have the
    scales of all tokens at the end of a block."""
    content = getattr(spec, "state_content_bytes", None)
    by_token = (
        content in (None, _FP8_DS_MLA)
        and backend != "AMX_MLA"
        and "INDEXER" not in backend
        and getattr(spec, "model_version", None) is None
        and not releases.is_indexer(spec)
    )
    return {"latent": (cache if by_token else whole(cache), Heads(0, 1, 1))}


def _slots(cache: torch.Tensor, spec: AttentionSpec, heads: Heads, rank: Rank) -> Components:
    """K and V in slots of their own, in an order that only the kernel knows: a slot for K and
    one for V of each head, or of all heads together."""
    view = whole(cache)
    half = view.shape[1] // 2
    if half == 1:
        heads = dealt(rank, min(heads.of, rank.tp_size))
    elif half != spec.num_kv_heads:
        raise NotImplementedError(f"{spec.num_kv_heads} kv heads in {view.shape[1]} slots")
    return {"k": (view[:, :half], heads), "v": (view[:, half:], heads)}


def _cpu(cache: torch.Tensor, spec: AttentionSpec) -> dict[str, torch.Tensor]:
    """vLLM's kernels for CPUs keep all K of a head in front of all V. Those for plain vector
    instructions have K transposed; what others do is their own affair."""
    if not releases.transposes_k(spec):
        return {"kv": whole(cache)}
    blocks, heads, tokens, _ = cache.shape
    k, v = whole(cache).view(blocks, heads, 2, -1).unbind(2)
    k = k.view(blocks, heads, spec.head_size, tokens).transpose(2, 3)
    return {"k": k, "v": v.view(blocks, heads, tokens, spec.head_size)}


def _apart(cache: torch.Tensor, spec: AttentionSpec) -> dict[str, torch.Tensor]:
    """K and V in a dimension of their own, as older releases have them."""
    where = next((i for i in (1, 0) if cache.shape[i] == 2), None)
    if where is None:
        raise NotImplementedError(f"a cache of shape {tuple(cache.shape)}")
    k, v = cache.unbind(where)
    if k.shape[1] == k.shape[2]:
        raise NotImplementedError(
            f"shape {tuple(cache.shape)}: heads and tokens cannot be told apart"
        )
    if k.shape[1] != spec.num_kv_heads:
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    return {"k": k, "v": v}


def _require_content(cache: torch.Tensor, spec: AttentionSpec) -> None:
    wanted = spec.head_size + (getattr(spec, "head_size_v", None) or spec.head_size)
    if cache.shape[3] != wanted:
        raise NotImplementedError(
            f"{cache.shape[3]} numbers of a token in a head, not {wanted} for K and V"
        )
