# SPDX-License-Identifier: Apache-2.0
"""Engines over caches as vLLM allocates them, described by the connector: what P has of a
token is what D gets, wherever either side keeps it."""

from __future__ import annotations

import random
import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import need_vllm  # noqa: F401
import pytest
import torch

pytest.importorskip("vllm.v1.kv_cache_layout", reason="this release allocates in another way")

from described import Place, Worker, read
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm_harness import write_model

from nixlpush import (
    RECEIVED,
    SENT,
    Engine,
    Event,
    Expect,
    Offer,
    Options,
    SideChannel,
    pack_blocks,
)
from nixlpush.vllm.blocklists import BlockLists
from nixlpush.vllm.ranks import rank_of

HEADS, PROMPT, CACHED = 4, 150, 64
SIZES = {"head_size": 16, "dtype": torch.float32}
Lists = tuple[list[int], ...]


def full(heads: int, tokens: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=tokens, num_kv_heads=heads, **SIZES)


def window(heads: int, tokens: int) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=tokens, num_kv_heads=heads, sliding_window=40, **SIZES)


def latent(heads: int, tokens: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=tokens, num_kv_heads=1, **SIZES)


def state(heads: int, tokens: int) -> MambaSpec:
    return MambaSpec(
        block_size=512,
        shapes=((24 * heads, 3), (heads, 8, 8)),
        dtypes=(torch.float16, torch.float32),
        mamba_type=MambaAttentionBackendEnum.MAMBA2,
        page_size_padded=full(heads, tokens).page_size_bytes,
    )


class Case(NamedTuple):
    """How the two sides differ. Layers are dealt out to P's stages; D has all."""

    spec: Callable[[int, int], KVCacheSpec] = full
    every_third: Callable[[int, int], KVCacheSpec] | None = None
    backend: str = "FLEX_ATTENTION"
    layouts: tuple[str, str] = ("LBNHC", "LBNHC")
    tokens: tuple[int, int] = (16, 16)
    tp: tuple[int, int] = (1, 1)
    stages: tuple[int, ...] = (3,)
    kernel_blocks: tuple[int | None, int | None] = (None, None)
    alike: bool = False  # P's ranks hold the same


class Side:
    """All ranks of P (0) or D (1): a cache and an engine for each."""

    def __init__(self, stack: ExitStack, model: Path, case: Case, which: int) -> None:
        self.tokens, tp = case.tokens[which], case.tp[which]
        stages = case.stages if which == 0 else (sum(case.stages),)
        self.channel = stack.enter_context(SideChannel.open("127.0.0.1", 0))
        self.workers: list[Worker] = []
        self.engines: list[Engine] = []
        for rank in range(tp * len(stages)):
            first = sum(stages[: rank // tp])
            specs = {}
            for i in range(first, first + stages[rank // tp]):
                make = case.every_third if case.every_third and i % 3 == 2 else case.spec
                specs[f"model.layers.{i}.attn"] = make(max(1, HEADS // tp), self.tokens)
            worker = Worker(
                model,
                specs,
                case.layouts[which],
                case.backend,
                rank,
                tp,
                len(stages),
                case.kernel_blocks[which],
                memory=500_000 * len(specs),
            )
            worker.fill((1 - 2 * which) * (1 if case.alike else rank + 1) * 1_000_000)
            self.workers.append(worker)
            self.engines.append(self._open(stack, worker, "PD"[which]))
        self.lists = BlockLists(self.workers[0].kv_cache_config)

    def _open(self, stack: ExitStack, worker: Worker, engine_id: str) -> Engine:
        rank = rank_of(worker.config.parallel_config)
        port = self.channel.port
        options = Options(engine_id, "127.0.0.1", port, **rank._asdict())
        engine = Engine.open(options)
        stack.callback(engine.close)
        engine.register(worker.describe())
        self.channel.publish(engine.metadata(), pp_rank=rank.pp_rank, tp_rank=rank.tp_rank)
        return engine

    def ids(self, seeded: random.Random, first_token: int) -> Lists:
        """Blocks of its own for the tokens from one on, in each group."""
        config = self.workers[0].kv_cache_config
        count = -(-PROMPT // self.tokens) - first_token // self.tokens
        groups = len(config.kv_cache_groups)
        ids = seeded.sample(range(1, config.num_blocks), groups * count)
        return self.lists.of([ids[g * count : (g + 1) * count] for g in range(groups)])

    def first_tokens(self, ids: list[int]) -> dict[int, int]:
        """The first token of each block in a list."""
        end = -(-PROMPT // self.tokens) * self.tokens
        return {id_: end - (len(ids) - i) * self.tokens for i, id_ in enumerate(ids)}


CASES = {
    **{
        f"LBHNC to {name}": Case(layouts=("LBHNC", name), tokens=(16, 32))
        for name in KVCacheLayout.__members__
    },
    **{
        f"{name} to LBNHC": Case(layouts=(name, "LBNHC"), tp=(2, 1))
        for name in KVCacheLayout.__members__
    },
    "tp 1 to 2, larger blocks": Case(layouts=("BLHNC", "LBHNC"), tokens=(32, 16), tp=(1, 2)),
    "transposed K": Case(
        backend="CPU_ATTN", layouts=("LBHNC",) * 2, tokens=(32, 64), tp=(2, 1)
    ),
    "mla, 4 to 1": Case(latent, tp=(4, 1), alike=True),
    "mla, 1 to 2": Case(latent, tokens=(32, 16), tp=(1, 2)),
    "windows": Case(window, full),
    "windows, larger blocks": Case(window, full, tokens=(16, 32), tp=(2, 1)),
    "states beside attention": Case(state, full, tp=(2, 1)),
    "stages": Case(stages=(1, 3), tp=(2, 1)),
    "kernel blocks": Case(tokens=(64, 32), kernel_blocks=(16, None)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_byte(tmp_path: Path, case: Case) -> None:
    with ExitStack() as stack:
        model = write_model(tmp_path)
        p = Side(stack, model, case, 0)
        d = Side(stack, model, case, 1)
        seeded = random.Random(2)
        sources, targets = p.ids(seeded, 0), d.ids(seeded, CACHED)
        before = [elements_of([worker]) for worker in d.workers]
        push(p, d, sources, targets)
        have = elements_of(p.workers)
        for worker, was in zip(d.workers, before):
            now = elements_of([worker])
            for group, (source, target) in enumerate(zip(sources, targets)):
                # Groups share memory: blocks of another group's are not this one's.
                others = set().union(*targets) - set(target)
                own = [at for at in was[group] if at.block not in others]
                come = {at: moves(p, d, source, target, at) for at in own}
                assert any(come.values())
                for at, origin in come.items():
                    wanted = have[group][origin] if origin else was[group][at]
                    assert now[group][at] == wanted, at


def elements_of(workers: list[Worker]) -> list[dict[Place, bytes]]:
    """What each group's ids lead to, in all ranks."""
    groups = range(len(workers[0].kv_cache_config.kv_cache_groups))
    layouts = [worker.describe() for worker in workers]
    return [dict(e for layout in layouts for e in read(layout, g).items()) for g in groups]


def push(p: Side, d: Side, sources: Lists, targets: Lists) -> None:
    """One request through all ranks of both sides."""
    rank = rank_of(p.workers[0].config.parallel_config)
    expect = Expect(
        1,
        "d-1",
        "P",
        "127.0.0.1",
        p.channel.port,
        rank.tp_size,
        rank.pp_size,
        "transfer-1",
        None,
        *pack_blocks(targets),
    )
    offer = Offer(1, "p-1", "transfer-1", *pack_blocks(sources), tokens=PROMPT)
    for engine in d.engines:
        engine.submit(expects=[expect])
    for engine in p.engines:
        engine.submit(offers=[offer])
    for kind, engines in ((SENT, p.engines), (RECEIVED, d.engines)):
        for event in map(next_event, engines):
            assert event.kind == kind, str(event)


def next_event(engine: Engine) -> Event:
    poller = select.poll()
    poller.register(engine.event_fd(), select.POLLIN)
    deadline = time.monotonic() + 30
    while not (events := engine.poll()):
        left = deadline - time.monotonic()
        assert left > 0, "no event in time"
        poller.poll(left * 1000)
    (event,) = events
    return event


def moves(
    p: Side, d: Side, source: list[int], target: list[int], place: Place
) -> Place | None:
    """Where P has what comes to a place of D; None if nothing does. Both lists of a group end
    with the prompt's last block."""
    first_token = d.first_tokens(target).get(place.block)
    if first_token is None:
        return None
    token = first_token + place.token
    for block, first in p.first_tokens(source).items():
        if first <= token < first + p.tokens:
            return place._replace(block=block, token=token - first)
    return None
