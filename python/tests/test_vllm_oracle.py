# SPDX-License-Identifier: Apache-2.0
"""Our byte map against that of vLLM's own push worker, for what both can do.

vLLM's worker computes what it would write; an agent that only notes it stands in for NIXL.
What it notes is checked against a meaning of our own, then our engines push the same lists
over NIXL and D's whole memory must be the same, byte by byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple, Self
from unittest import mock

import need_vllm  # noqa: F401
import numpy as np
import pytest
from cache import Node
from oracle_cache import (
    D_BLOCKS,
    P_BLOCKS,
    Geometry,
    Lists,
    RankCache,
    draw,
    fill,
    move,
    write_config,
)
from stock_recorder import StockRank, Write, clipper
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.v1.attention.backend import MultipleOf

from nixlpush import (
    RECEIVED,
    SENT,
    Event,
    Expect,
    Layout,
    Offer,
    SideChannel,
    pack_blocks,
)
from nixlpush.vllm import layout

REQUESTS = 200

GEOMETRIES = [
    Geometry("tp1"),
    Geometry("tp2", 2, 2),
    Geometry("cpu-tp2-to-tp1", 2, 1, attention="CPU_ATTN"),
    Geometry("cpu-tp1-to-tp2", 1, 2, attention="CPU_ATTN"),
    Geometry("tp2-to-tp1", 2, 1),
    Geometry("tp1-to-tp2", 1, 2),
    Geometry("tp4-to-tp2", 4, 2),
    Geometry("tp1-to-tp4", 1, 4),
    Geometry("more-ranks-than-heads-on-p", 4, 1, heads=2),
    Geometry("more-ranks-than-heads", 4, 4, heads=2),
    Geometry("mla", mla=True, heads=1, attention="FLASHMLA"),
    Geometry("mla-tp2-to-tp1", 2, 1, mla=True, heads=1, attention="FLASHMLA"),
    Geometry("mla-tp1-to-tp2", 1, 2, mla=True, heads=1, attention="FLASHMLA"),
    Geometry("kernel-blocks", block=32, kernel=16),
    Geometry("kernel-blocks-tp2-to-tp1", 2, 1, block=32, kernel=16),
    Geometry("blocks-of-64", block=64),
    Geometry("blocks-of-64-tp1-to-tp2", 1, 2, block=64),
    Geometry("hybrid", hybrid=True),
    Geometry("hybrid-tp2-to-tp1", 2, 1, hybrid=True),
    Geometry("hybrid-tp1-to-tp2", 1, 2, hybrid=True),
    Geometry("hybrid-apart", hybrid=True, apart=True),
    Geometry("hybrid-apart-tp2-to-tp1", 2, 1, hybrid=True, apart=True),
    Geometry("pp2", p_pp=2),
    Geometry("pp2-tp2-to-tp1", 2, 1, p_pp=2),
    Geometry("pp2-mla", p_pp=2, mla=True, heads=1, attention="FLASHMLA"),
    Geometry("pp2-hybrid", p_pp=2, hybrid=True),
    Geometry("pp2-hybrid-apart", p_pp=2, hybrid=True, apart=True),
    Geometry("LBNHC", 2, 2, layout="LBNHC"),
    Geometry("LHBNC", 2, 2, layout="LHBNC"),
    Geometry("BLHNC", 2, 2, layout="BLHNC"),
    Geometry("BLHNC-tp2-to-tp1", 2, 1, layout="BLHNC"),
    Geometry("BLHNC-tp1-to-tp2", 1, 2, layout="BLHNC"),
    Geometry("BLNHC", 2, 2, layout="BLNHC"),
    Geometry("BHLNC", 2, 2, layout="BHLNC"),
]

# What vLLM's worker refuses at the handshake, and how: nothing to compare with.
REFUSED = [
    (Geometry("more-ranks-than-heads-on-d", 1, 4, heads=2), AssertionError, ""),
    (Geometry("LBNHC-tp2-to-tp1", 2, 1, layout="LBNHC"), RuntimeError, "contiguous heads"),
    (
        Geometry("pp2-hybrid-tp1-to-tp2", 1, 2, p_pp=2, hybrid=True),
        NotImplementedError,
        "decode TP greater",
    ),
]

# What our engines cannot do yet, and why.
NOT_YET: dict[str, str] = {}


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

    def request(self, number: int) -> Lists:
        """What the two schedulers hand to their workers for a random request."""
        tokens, source, target = draw(
            self.geometry, random.Random(f"{self.geometry} {number}")
        )
        return Lists(tokens, self._clip[0](source), self._clip[1](target))

    def reset(self) -> None:
        """D's memory as it was before anything was pushed."""
        for target, before in zip(self.targets, self.before):
            target.bytes[:] = before

    def stock_writes(self, name: str, lists: Lists) -> list[list[Write]]:
        """What vLLM's ranks of P write, by rank of D."""
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


def applied(world: World, writes: list[list[Write]]) -> list[np.ndarray]:
    """D's memory, by rank, after these writes to it as it was before."""
    memories = []
    for target, before, its in zip(world.targets, world.before, writes):
        memory = before.copy()
        for write in its:
            for source, destination, length in write.copies.tolist():
                to = destination - target.base
                memory[to : to + length] = world_bytes(world, source, length)
        memories.append(memory)
    return memories


def world_bytes(world: World, address: int, length: int) -> np.ndarray:
    """Bytes of P's memory; fails where P has none."""
    for rank in world.sources:
        begin = address - rank.base
        if begin >= 0 and begin + length <= rank.bytes.size:
            return rank.bytes[begin : begin + length]
    raise AssertionError(f"no rank of P has {length} bytes at {address:#x}")


def meant(world: World, lists: Lists) -> list[np.ndarray]:
    """D's memory, by rank, as it must become."""
    per_id = world.geometry.per_id
    pairs = []
    for source, target in zip(lists.source, lists.target):
        source = source[len(source) - len(target) :]
        pairs.append(
            tuple(
                [i * per_id + k for i in ids for k in range(per_id)]
                for ids in (source, target)
            )
        )
    world.reset()
    for target in world.targets:
        move(world.geometry, world.sources, target, pairs)
    memories = [target.bytes.copy() for target in world.targets]
    world.reset()
    return memories


@pytest.fixture(scope="module", params=GEOMETRIES, ids=str)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    geometry = request.param
    world = World(geometry, write_config(tmp_path_factory.mktemp(geometry.name), geometry))
    yield world
    world.close()


@pytest.mark.parametrize(("geometry", "error", "text"), REFUSED, ids=str)
def test_vllms_worker_refuses(
    geometry: Geometry, error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        World(geometry, write_config(tmp_path, geometry))


def test_vllms_worker_writes_what_is_meant(world: World) -> None:
    geometry = world.geometry
    expected_writes = geometry.p_pp * max(1, geometry.p_tp // geometry.d_tp)
    for number in range(REQUESTS):
        lists = world.request(number)
        writes = world.stock_writes(f"r{number}", lists)
        assert [len(its) for its in writes] == [expected_writes] * geometry.d_tp
        for got, want in zip(applied(world, writes), meant(world, lists)):
            assert np.array_equal(got, want), f"request {number}: {lists}"


class Engines:
    """Our engines over the same caches: one for each rank of P and of D."""

    def __init__(self, world: World) -> None:
        self._exit = ExitStack()
        with self._exit:
            self._producers = self._open(world.sources)
            self._consumers = self._open(world.targets)
            self._exit = self._exit.pop_all()
        self._peer = world.geometry.p_tp, world.geometry.p_pp

    def _open(self, ranks: list[RankCache]) -> list[Node]:
        channel = self._exit.enter_context(SideChannel.open("127.0.0.1", 0))
        return [
            self._exit.enter_context(
                Node(
                    rank.config.kv_transfer_config.engine_id,
                    Described(rank),
                    channel,
                    compat_hash="same",
                    tp_rank=rank.tp_rank,
                    tp_size=rank.tp_size,
                    pp_rank=rank.pp_rank,
                    pp_size=rank.pp_size,
                )
            )
            for rank in ranks
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def push(self, tag: int, lists: Lists) -> int:
        """Moves a request; returns the bytes written."""
        source, target = pack_blocks(lists.source), pack_blocks(lists.target)
        offer = Offer(tag, f"r{tag}-0000000a", None, *source, tokens=lists.tokens)
        peer = self._producers[0]
        expect = Expect(
            tag,
            f"r{tag}-0000000b",
            peer.engine_id,
            "127.0.0.1",
            peer.channel.port,
            *self._peer,
            block_ids=target[0],
            block_counts=target[1],
        )
        for consumer in self._consumers:
            consumer.engine.submit(expects=[expect])
        for producer in self._producers:
            producer.engine.submit(offers=[offer])
        sent = self._end(self._producers, tag, SENT)
        self._end(self._consumers, tag, RECEIVED)
        return sum(event.bytes for event in sent)

    @staticmethod
    def _end(nodes: list[Node], tag: int, kind: int) -> list[Event]:
        events = [event for node in nodes for event in node.wait(timeout=10)]
        assert [(event.tag, event.kind) for event in events] == [(tag, kind)] * len(nodes), [
            str(event) for event in events
        ]
        return events


class Described(NamedTuple):
    """A rank's cache, described by the shim."""

    rank: RankCache

    def layout(self) -> Layout:
        rank = self.rank
        return layout.describe(rank.config, rank.kv_cache, rank.caches)


def distinct(writes: list[list[Write]]) -> int:
    """Bytes that are written, each counted once."""
    places = {
        (destination, length)
        for its in writes
        for write in its
        for _, destination, length in write.copies.tolist()
    }
    return sum(length for _, length in places)


def test_our_engines_write_what_vllms_worker_writes(
    world: World, request: pytest.FixtureRequest
) -> None:
    if reason := NOT_YET.get(world.geometry.name):
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    with Engines(world) as ours:
        for number in range(1, REQUESTS + 1):
            lists = world.request(number)
            writes = world.stock_writes(f"r{number}", lists)
            world.reset()
            assert ours.push(number, lists) == distinct(writes)
            for target, want in zip(world.targets, applied(world, writes)):
                assert np.array_equal(target.bytes, want), f"request {number}: {lists}"
