# SPDX-License-Identifier: Apache-2.0
"""Our byte map against that of vLLM's own push worker, for what both can do.

vLLM's worker computes what it would write; an agent that only notes it stands in for NIXL.
What it notes is checked against a meaning of our own, then our engines push the same lists
over NIXL and D's whole memory must be the same, byte by byte. No byte is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import need_vllm  # noqa: F401
import numpy as np
import pytest
import vllm
from cache import Node

if not vllm.__version__.startswith("0.32."):
    pytest.skip("the oracle is vLLM 0.32", allow_module_level=True)

from oracle_cache import Geometry, Lists, RankCache, write_config
from oracle_world import World, applied, distinct, meant

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
    (Geometry("more-ranks-than-heads-on-d", 1, 4, heads=2), AssertionError, None),
    (Geometry("LBNHC-tp2-to-tp1", 2, 1, layout="LBNHC"), RuntimeError, "contiguous heads"),
    (
        Geometry("pp2-hybrid-tp1-to-tp2", 1, 2, p_pp=2, hybrid=True),
        NotImplementedError,
        "decode TP greater",
    ),
]


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
    geometry: Geometry, error: type[Exception], text: str | None, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        World(geometry, write_config(tmp_path, geometry))


def test_vllms_worker_writes_what_is_meant(world: World) -> None:
    geometry = world.geometry
    expected_writes = geometry.p_pp * max(1, geometry.p_tp // geometry.d_tp)
    for number, (lists, writes) in enumerate(world.requests):
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
                    receive_timeout_ms=5000,
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
        self._end(self._consumers, tag, RECEIVED)
        sent = self._end(self._producers, tag, SENT)
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


def test_our_engines_write_what_vllms_worker_writes(world: World) -> None:
    with Engines(world) as ours:
        for number, (lists, writes) in enumerate(world.requests):
            world.reset()
            assert ours.push(number + 1, lists) == distinct(writes)
            for target, want in zip(world.targets, applied(world, writes)):
                assert np.array_equal(target.bytes, want), f"request {number}: {lists}"
