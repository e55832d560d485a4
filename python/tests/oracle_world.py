# SPDX-License-Identifier: Apache-2.0
"""P and D of one geometry: what vLLM's workers write for a request, and what D's memory must
be after it."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from unittest import mock

import numpy as np
from oracle_cache import (
    D_BLOCKS,
    P_BLOCKS,
    Geometry,
    Lists,
    RankCache,
    draw,
    fill,
    mark_slack,
    move,
)
from stock_recorder import StockRank, Write, clipper
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.v1.attention.backend import MultipleOf

REQUESTS = 200

Writes = list[list[Write]]  # by rank of D


class World:
    """P and D of one geometry, with vLLM's workers over their caches."""

    def __init__(self, geometry: Geometry, model: Path) -> None:
        self.geometry = geometry
        name, tp, stages = str(geometry), geometry.p_tp, geometry.p_pp
        self.sources = [
            RankCache(geometry, model, f"p-{name}", P_BLOCKS, (rank, tp), (stage, stages))
            for stage in range(stages)
            for rank in range(tp)
        ]
        self.targets = [
            RankCache(geometry, model, f"d-{name}", D_BLOCKS, (rank, geometry.d_tp))
            for rank in range(geometry.d_tp)
        ]
        fill(self.sources, geometry, 1)
        fill(self.targets, geometry, 2)
        self.before = [target.bytes.copy() for target in self.targets]
        with ExitStack() as stack:
            stack.enter_context(self._attention())
            self.producers = [_stock(rank, stack) for rank in self.sources]
            self.consumers = [_stock(rank, stack) for rank in self.targets]
            for producer in self.producers:
                producer.meet(self.consumers)
            self.close = stack.pop_all().close
        self._clip = [
            clipper(rank.config, rank.kv_cache) for rank in (self.sources[0], self.targets[0])
        ]

    def _attention(self) -> AbstractContextManager:
        """vLLM's attention is that of the geometry; here it would be that of a CPU."""
        kernel = self.geometry.kernel
        return mock.patch.multiple(
            get_current_attn_backends(self.sources[0].config)[0],
            get_name=lambda: self.geometry.attention,
            get_supported_kernel_block_sizes=lambda _=None: [kernel or MultipleOf(16)],
        )

    @cached_property
    def requests(self) -> list[tuple[Lists, Writes]]:
        """Random requests as two schedulers hand them to their workers, and what vLLM's ranks
        of P write for them."""
        requests = []
        for number in range(REQUESTS):
            rng = random.Random(f"{self.geometry} {number}")
            tokens, source, target = draw(self.geometry, rng)
            lists = Lists(tokens, self._clip[0](source), self._clip[1](target))
            requests.append((lists, self._writes(f"r{number}", lists)))
        return requests

    def reset(self) -> None:
        """D's memory as it was before anything was pushed."""
        for target, before in zip(self.targets, self.before):
            target.bytes[:] = before

    def _writes(self, name: str, lists: Lists) -> Writes:
        writes = [
            write
            for producer in self.producers
            for write in producer.push(name, lists.source, self.consumers[0], lists.target)
        ]
        return [
            [write for write in writes if write.target == consumer.agent.name]
            for consumer in self.consumers
        ]


def _stock(rank: RankCache, stack: ExitStack) -> StockRank:
    tp = rank.tp_rank, rank.tp_size
    stock = StockRank(rank.config, rank.kv_cache, rank.caches, *tp)
    stack.callback(stock.close)
    return stock


def applied(world: World, writes: Writes) -> list[np.ndarray]:
    """D's memory, by rank, after these writes to it as it was before."""
    memories = []
    for target, before, its in zip(world.targets, world.before, writes):
        memory = before.copy()
        for write in its:
            for source, destination, length in write.copies.tolist():
                to = destination - target.base
                assert 0 <= to <= memory.size - length, f"{destination:#x} is outside of D"
                memory[to : to + length] = _source(world, source, length)
        memories.append(memory)
    return memories


def _source(world: World, address: int, length: int) -> np.ndarray:
    """Bytes of P's memory; fails where P has none."""
    for rank in world.sources:
        begin = address - rank.base
        if 0 <= begin <= rank.bytes.size - length:
            return rank.bytes[begin : begin + length]
    raise AssertionError(f"no rank of P has {length} bytes at {address:#x}")


def meant(world: World, lists: Lists) -> list[np.ndarray]:
    """D's memory, by rank, as it must become: the ends of both lists belong together."""
    pairs = [
        (source[len(source) - len(target) :], target)
        for source, target in zip(lists.source, lists.target)
    ]
    world.reset()
    for target in world.targets:
        move(world.geometry, world.sources, target, pairs)
    memories = [target.bytes.copy() for target in world.targets]
    world.reset()
    return memories


def slack(world: World, lists: Lists) -> list[np.ndarray]:
    """Where in D's memory, by rank, it does not matter what a push writes."""
    masks = []
    for target in world.targets:
        mark_slack(world.geometry, target, lists.target)
        masks.append(target.bytes != 0)
    world.reset()
    return masks


def distinct(writes: Writes) -> int:
    """Bytes that are written, each counted once."""
    places = {
        (destination, length)
        for its in writes
        for write in its
        for _, destination, length in write.copies.tolist()
    }
    return sum(length for _, length in places)
