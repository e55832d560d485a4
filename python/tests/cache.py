# SPDX-License-Identifier: Apache-2.0
"""A small KV cache in host memory, and engines over it."""

from __future__ import annotations

import ctypes
import select
import time
from typing import Protocol, Self

from nixlpush import Engine, Event, Layout, Memory, Options, Region, SideChannel

BLOCK_LEN = 4096
NUM_BLOCKS = 64
NUM_LAYERS = 3


class Cache:
    """NUM_LAYERS arrays of NUM_BLOCKS blocks of BLOCK_LEN bytes."""

    def __init__(self) -> None:
        size = NUM_BLOCKS * BLOCK_LEN
        self.layers = [ctypes.create_string_buffer(size) for _ in range(NUM_LAYERS)]

    def block(self, layer: int, index: int) -> bytes:
        return self.layers[layer][index * BLOCK_LEN : (index + 1) * BLOCK_LEN]

    def fill(self, index: int, value: int) -> None:
        """Writes a pattern of its own into block `index` of every layer."""
        for number, layer in enumerate(self.layers):
            pattern = bytes([(value + number) % 256]) * BLOCK_LEN
            ctypes.memmove(ctypes.addressof(layer) + index * BLOCK_LEN, pattern, BLOCK_LEN)

    def layout(self) -> Layout:
        addresses = [ctypes.addressof(layer) for layer in self.layers]
        return Layout(
            name="LBHNC",
            attention_backend="CPU_ATTN",
            block_size=16,
            num_blocks=NUM_BLOCKS,
            regions=[
                Region(f"model.layers.{i}.attn", address, BLOCK_LEN, BLOCK_LEN, NUM_BLOCKS)
                for i, address in enumerate(addresses)
            ],
            memory=[Memory(address, NUM_BLOCKS * BLOCK_LEN) for address in addresses],
        )


class HasLayout(Protocol):
    """Memory that an engine can be opened over."""

    def layout(self) -> Layout: ...


class Node:
    """An engine with a cache and a side channel on a free port, or on one that it shares with
    other ranks. What is not given is made here."""

    def __init__(
        self,
        engine_id: str,
        cache: HasLayout | None = None,
        channel: SideChannel | None = None,
        **options: object,
    ) -> None:
        self.engine_id = engine_id
        self.cache = cache or Cache()
        self.channel = channel or SideChannel.open("127.0.0.1", 0)
        library_path = options.pop("library_path", None)
        self.engine = Engine.open(
            Options(
                engine_id=engine_id,
                side_channel_host="127.0.0.1",
                side_channel_port=self.channel.port,
                **options,
            ),
            library_path=library_path,
        )
        self.engine.register(self.cache.layout())
        self._rank = {"pp_rank": options.get("pp_rank", 0), "tp_rank": options.get("tp_rank", 0)}
        self.publish(self.engine.metadata())

    def publish(self, metadata: bytes) -> None:
        """What peers are told of this rank from now on."""
        self.channel.publish(metadata, **self._rank)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        self.channel.close()

    def wait(self, count: int = 1, timeout: float = 30) -> list[Event]:
        """The next `count` events; fails when they do not come in time."""
        poller = select.poll()
        poller.register(self.engine.event_fd(), select.POLLIN)
        events: list[Event] = []
        deadline = time.monotonic() + timeout
        while len(events) < count:
            left = deadline - time.monotonic()
            assert left > 0, f"{len(events)} of {count} events within {timeout} s"
            poller.poll(left * 1000)
            events += self.engine.poll()
        return events

    def settle(self, timeout: float = 10, **held: int) -> None:
        """Waits until the engine holds what is given; its loop takes a step after `submit`
        has returned."""
        deadline = time.monotonic() + timeout
        while (seen := {name: self.engine.stats()[name] for name in held}) != held:
            assert time.monotonic() < deadline, f"{seen}, wanted {held}"
            time.sleep(0.005)
