# SPDX-License-Identifier: Apache-2.0
"""Which of a request's blocks are told to the other side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nixlpush.vllm import releases
from nixlpush.vllm.geometry import group_specs, is_state, window_of

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec


class BlockLists:
    """Cuts the lists of block ids of a request down to what is transferred, as vLLM's own
    connector does: the end of each group's list that its layers look at."""

    def __init__(self, kv_cache_config: KVCacheConfig) -> None:
        self._groups = tuple(releases.transfer_group_ids(kv_cache_config))
        self._specs = group_specs(kv_cache_config)
        self._whole = not any(is_state(spec) or window_of(spec) for spec in self._specs)

    @property
    def has_states(self) -> bool:
        """Whether some group's blocks are states, which tokens cannot be taken from again."""
        return any(map(is_state, self._specs))

    def of(self, block_ids: Sequence[list[int]]) -> tuple[list[int], ...]:
        """The lists of the groups that are transferred, out of those of all groups."""
        groups = tuple([block_ids[group] for group in self._groups])
        if self._whole:
            return groups
        return tuple(_end(ids, spec) for ids, spec in zip(groups, self._specs, strict=True))


def _end(ids: list[int], spec: KVCacheSpec) -> list[int]:
    if is_state(spec):
        # Behind the state there is room for what speculation may reject.
        scratch = min(spec.num_speculative_blocks, max(len(ids) - 1, 0))
        return ids[: len(ids) - scratch][-1:]
    if window := window_of(spec):
        # One more, since a window need not begin where a block does.
        return ids[-(-(-window // spec.block_size) + 1) :]
    return ids
