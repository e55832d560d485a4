# SPDX-License-Identifier: Apache-2.0
"""Our byte map against that of vLLM's own push worker, for what both can do.

vLLM's worker computes what it would write; an agent that only notes it stands in for NIXL.
What it notes is checked against a meaning of our own, then our engines push the same lists
over NIXL and D's whole memory must be the same, byte by byte. No byte is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import need_vllm  # noqa: F401
import numpy as np
import pytest
import vllm
from cache import Node

if not vllm.__version__.startswith("0.32."):
    pytest.skip("the oracle is vLLM 0.32", allow_module_level=True)

from oracle_cache import Geometry, Lists, RankCache, write_config
from oracle_world import World, applied, distinct, meant, slack
from stock_recorder import StockRank
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
    NixlAgentMetadata,
    NixlHandshakePayload,
)

from nixlpush import (
    RECEIVE_FAILED,
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

DERIVED = 40  # requests that are pushed to and from derived caches

MLA = {"mla": True, "heads": 1, "attention": "FLASHMLA"}

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
    Geometry("mla", **MLA),
    Geometry("mla-tp2-to-tp1", 2, 1, **MLA),
    Geometry("mla-tp1-to-tp2", 1, 2, **MLA),
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
    Geometry("pp2-mla", p_pp=2, **MLA),
    Geometry("pp2-hybrid", p_pp=2, hybrid=True),
    Geometry("pp2-hybrid-apart", p_pp=2, hybrid=True, apart=True),
    Geometry("LBNHC", 2, 2, layout="LBNHC"),
    Geometry("LHBNC", 2, 2, layout="LHBNC"),
    Geometry("BLHNC", 2, 2, layout="BLHNC"),
    Geometry("BLHNC-tp2-to-tp1", 2, 1, layout="BLHNC"),
    Geometry("BLHNC-tp1-to-tp2", 1, 2, layout="BLHNC"),
    Geometry("BLNHC", 2, 2, layout="BLNHC"),
    Geometry("BHLNC", 2, 2, layout="BHLNC"),
    Geometry("BLNHC-replicated", 4, 4, heads=2, layout="BLNHC"),
    Geometry("LBNHC-replicated", 4, 2, heads=1, layout="LBNHC"),
    Geometry("LBNHC-hybrid", 2, 2, layout="LBNHC", hybrid=True),
    Geometry("BLHNC-hybrid", 2, 2, layout="BLHNC", hybrid=True),
    Geometry("BLHNC-hybrid-tp2-to-tp1", 2, 1, layout="BLHNC", hybrid=True),
    Geometry("BLHNC-hybrid-tp1-to-tp2", 1, 2, layout="BLHNC", hybrid=True),
    Geometry("BLNHC-hybrid", 2, 2, layout="BLNHC", hybrid=True),
    Geometry("BHLNC-hybrid", 2, 2, layout="BHLNC", hybrid=True),
    Geometry("kernel-blocks-hybrid", block=32, kernel=16, hybrid=True),
    *(
        Geometry(f"{layout}-mla{name}", p, d, pp, layout=layout, **MLA, **more)
        for layout in ("LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
        for name, p, d, pp, more in [
            ("", 1, 1, 1, {}),
            ("-tp2-to-tp1", 2, 1, 1, {}),
            ("-tp1-to-tp2", 1, 2, 1, {}),
            ("-pp2", 1, 1, 2, {}),
            ("-hybrid", 1, 1, 1, {"hybrid": True}),
            ("-hybrid-pp2", 2, 1, 2, {"hybrid": True}),
        ]
    ),
    *(
        Geometry(f"{layout}-indexer{name}", p, d, pp, layout=layout, indexer=True, **MLA)
        for layout in ("LBHNC", "LBNHC", "BLHNC", "BLNHC")
        for name, p, d, pp in [("", 1, 1, 1), ("-tp1-to-tp2", 1, 2, 1), ("-pp2", 2, 1, 2)]
    ),
    *(
        Geometry(f"{layout}-states{name}", p, d, layout=layout, states=True, **more)
        for layout, name, p, d, more in [
            ("LBHNC", "", 1, 1, {}),
            ("LBHNC", "-tp2", 2, 2, {}),
            ("LBHNC", "-tp2-to-tp1", 2, 1, {}),
            ("LBHNC", "-tp1-to-tp2", 1, 2, {}),
            ("LBHNC", "-replicated", 4, 2, {"heads": 2}),
            ("LBHNC", "-mla", 2, 1, MLA),
            ("LBHNC", "-mla-tp1-to-tp2", 1, 2, MLA),
            ("LBHNC", "-kernel-blocks", 2, 1, {"block": 32, "kernel": 16}),
            ("LBHNC", "-first", 2, 1, {"states_first": True}),
            ("LBNHC", "", 2, 2, {}),
            ("LBNHC", "-mla", 2, 1, MLA),
            ("BLHNC", "", 2, 2, {}),
            ("BLHNC", "-tp2-to-tp1", 2, 1, {}),
            ("BLNHC", "", 2, 2, {}),
            ("BLHNC", "-mla", 1, 2, MLA),
        ]
    ),
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
    (Geometry("BLNHC-tp2-to-tp1", 2, 1, layout="BLNHC"), RuntimeError, "contiguous heads"),
    (Geometry("BHLNC-tp1-to-tp2", 1, 2, layout="BHLNC"), RuntimeError, "contiguous heads"),
    (Geometry("LHBNC-tp2-to-tp1", 2, 1, layout="LHBNC"), RuntimeError, "contiguous heads"),
    (
        Geometry("LBNHC-states-tp2-to-tp1", 2, 1, layout="LBNHC", states=True),
        RuntimeError,
        "contiguous heads",
    ),
    (
        Geometry("LHBNC-hybrid", 2, 2, layout="LHBNC", hybrid=True),
        AssertionError,
        "spans multiple NIXL regions",
    ),
    (Geometry("BLHNC-pp2", p_pp=2, layout="BLHNC"), NotImplementedError, "requires MLA"),
    (Geometry("pp2-states", p_pp=2, states=True), NotImplementedError, "Mamba/SSM"),
]

# What vLLM's worker accepts and then writes not all of.
LACKING = [
    # A head that several ranks of D hold goes to one of them.
    Geometry("states-more-ranks-than-heads-on-d", 1, 4, heads=2, states=True),
    # States with no attention at their address are taken to have no other layer between them.
    Geometry("BLHNC-states-first", layout="BLHNC", states=True, states_first=True),
    Geometry("BLNHC-states", 2, 2, layout="BLNHC", states=True),
    # The first page at an address is taken to be as large as the others there.
    Geometry("BLHNC-unequal-pages", layout="BLHNC", hybrid=True, window_heads=8),
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
        assert_same(world, number, applied(world, writes), meant(world, lists))


def assert_same(
    world: World, number: int, got: list[np.ndarray], wanted: list[np.ndarray]
) -> None:
    """D's memory, by rank, is as it should be after a request."""
    lists = world.requests[number][0]
    for memory, want, free in zip(got, wanted, slack(world, lists)):
        assert np.array_equal(memory[~free], want[~free]), f"request {number}: {lists}"


class Engines:
    """Our engines over the same caches: one for each rank of P and of D. As stock engines
    they tell each other no more than vLLM's workers tell."""

    def __init__(self, world: World, *, as_stock: bool = False) -> None:
        self._exit = ExitStack()
        with self._exit:
            self.producers = self._open(world.sources)
            self.consumers = self._open(world.targets)
            if as_stock:
                for node, stock in zip(self.producers, world.producers):
                    node.publish(said_by(stock, node))
                for node, stock in zip(self.consumers, world.consumers):
                    node.publish(said_by(stock, node))
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
        self.start(tag, lists)
        self._end(self.consumers, tag, RECEIVED)
        sent = self._end(self.producers, tag, SENT)
        return sum(event.bytes for event in sent)

    def start(self, tag: int, lists: Lists) -> None:
        """Hands a request to all ranks of D and of P."""
        source, target = pack_blocks(lists.source), pack_blocks(lists.target)
        offer = Offer(tag, f"r{tag}-0000000a", None, *source, tokens=lists.tokens)
        peer = self.producers[0]
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
        for consumer in self.consumers:
            consumer.engine.submit(expects=[expect])
        for producer in self.producers:
            producer.engine.submit(offers=[offer])

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


def said(node: Node) -> tuple[NixlHandshakePayload, NixlAgentMetadata]:
    """What our engine tells peers, as vLLM reads it."""
    payload = msgspec.msgpack.decode(node.engine.metadata(), type=NixlHandshakePayload)
    encoded = payload.agent_metadata_bytes
    return payload, msgspec.msgpack.decode(encoded, type=NixlAgentMetadata)


def said_by(stock: StockRank, node: Node) -> bytes:
    """What vLLM's worker tells peers, but for NIXL's agent, which is our engine's."""
    payload, ours = said(node)
    metadata = replace(stock.metadata(), agent_metadata=ours.agent_metadata)
    payload.agent_metadata_bytes = msgspec.msgpack.encode(metadata)
    return msgspec.msgpack.encode(payload)


def test_our_engines_write_what_vllms_worker_writes(world: World) -> None:
    with Engines(world) as ours:
        for number, (lists, writes) in enumerate(world.requests):
            world.reset()
            pushed = ours.push(number + 1, lists)
            got = [target.bytes.copy() for target in world.targets]
            assert_same(world, number, got, applied(world, writes))
            free = any(mask.any() for mask in slack(world, lists))
            assert pushed <= distinct(writes) if free else pushed == distinct(writes)


def test_our_engines_tell_what_vllms_worker_tells(world: World) -> None:
    """Byte for byte, our own key aside, so that vLLM's worker reads them as one of its own."""
    with Engines(world) as ours:
        for node, stock in zip(
            ours.producers + ours.consumers, world.producers + world.consumers
        ):
            payload, metadata = said(node)
            assert metadata == replace(
                stock.metadata(), agent_metadata=metadata.agent_metadata
            )
            header, keys = 3, msgspec.msgpack.encode(metadata)
            assert payload.agent_metadata_bytes[header:].startswith(keys[header:])


def test_our_engines_understand_what_vllms_worker_tells(world: World) -> None:
    """On both sides: the peer's cache is derived from what vLLM's worker says of it."""
    with Engines(world, as_stock=True) as ours:
        for number, (lists, writes) in enumerate(world.requests[:DERIVED]):
            world.reset()
            ours.push(number + 1, lists)
            got = [target.bytes.copy() for target in world.targets]
            assert_same(world, number, got, applied(world, writes))


@pytest.mark.parametrize("geometry", LACKING, ids=str)
def test_what_vllms_worker_would_not_write_is_refused(
    geometry: Geometry, tmp_path: Path
) -> None:
    """Between our engines it is written, from a stock engine D takes nothing."""
    world = World(geometry, write_config(tmp_path, geometry))
    try:
        lists, writes = world.requests[0]
        with pytest.raises(AssertionError, match="request 0"):
            assert_same(world, 0, applied(world, writes), meant(world, lists))
        with Engines(world) as ours:
            ours.push(1, lists)
            got = [target.bytes.copy() for target in world.targets]
            assert_same(world, 0, got, meant(world, lists))
        with Engines(world, as_stock=True) as ours:
            ours.start(1, lists)
            for consumer in ours.consumers:
                (event,) = consumer.wait(timeout=10)
                assert event.kind == RECEIVE_FAILED
                assert "does not fit" in event.message and "vLLM's connector" in event.message
    finally:
        world.close()
