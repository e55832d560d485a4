# SPDX-License-Identifier: Apache-2.0
"""Which rank a worker is, and which heads it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vllm.config import ParallelConfig


class Rank(NamedTuple):
    """One worker among those of its engine."""

    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int


class Heads(NamedTuple):
    """Which of so many heads of the model a rank holds, from the first one on."""

    first: int
    count: int
    of: int


def rank_of(parallel: ParallelConfig) -> Rank:
    """vLLM numbers the workers of an engine stage by stage."""
    tp, pp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    stage = tp * parallel.prefill_context_parallel_size
    return Rank(parallel.rank % tp, tp, parallel.rank // stage % pp, pp)


def dealt(rank: Rank, heads: int) -> Heads:
    """The share of a rank. With more ranks than heads, neighbours hold the same one."""
    first = rank.tp_rank * heads // rank.tp_size
    return Heads(first, max(1, heads // rank.tp_size), heads)


def kv_heads(rank: Rank, held: int, model: int) -> Heads:
    """The kv heads of a layer of which this rank holds so many. `model` is how many layers of
    the model have as a rule; it tells how often a single one is replicated.

    Raises NotImplementedError if the two contradict each other.
    """
    total = held * rank.tp_size if held > 1 or rank.tp_size == 1 else model
    heads = dealt(rank, total)
    if heads.count != held:
        raise NotImplementedError(
            f"a rank of {rank.tp_size} holds {held} kv heads of a layer and the model has "
            f"{model}: it is not known which ranks hold the same ones"
        )
    return heads
