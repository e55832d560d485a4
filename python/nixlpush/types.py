# SPDX-License-Identifier: Apache-2.0
"""What goes into and comes out of an engine, as plain Python values.

`include/nixlpush.h` is the reference; the names are the same and zero or None means the
library's default everywhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nixlpush import _abi

DRAM = _abi.DRAM
VRAM = _abi.VRAM

ONE_STATE = _abi.ONE_STATE

SENT = _abi.SENT
SEND_FAILED = _abi.SEND_FAILED
RECEIVED = _abi.RECEIVED
RECEIVE_FAILED = _abi.RECEIVE_FAILED

REASONS: dict[int, str] = {
    _abi.REASON_NONE: "none",
    _abi.REASON_DEADLINE: "deadline",
    _abi.REASON_LEASE_EXPIRED: "lease expired",
    _abi.REASON_UNREACHABLE: "unreachable",
    _abi.REASON_INCOMPATIBLE: "incompatible",
    _abi.REASON_WRITE_FAILED: "write failed",
    _abi.REASON_CANCELLED: "cancelled",
    _abi.REASON_CLOSED: "closed",
    _abi.REASON_INTERNAL: "internal",
    _abi.REASON_PEER: "given up by the peer",
}


@dataclass(frozen=True)
class Backend:
    """One NIXL backend, e.g. "UCX" or "LIBFABRIC", with parameters of its own."""

    name: str
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """Who an engine is and how long it waits. Times are milliseconds."""

    engine_id: str
    side_channel_host: str
    side_channel_port: int
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    nixl_library: str | None = None
    wheel_root: str | None = None
    backends: Sequence[Backend] = ()
    compat_hash: str = ""
    compat_factors: Mapping[str, str] = field(default_factory=dict)
    ignore_compat: bool = False
    writers: int = 0
    max_procs: int = 0
    lease_ms: int = 0
    receive_timeout_ms: int = 0
    handshake_timeout_ms: int = 0
    heartbeat_ms: int = 0
    peer_ttl_ms: int = 0


@dataclass(frozen=True)
class Part:
    """One component of some layers in each block of a region: an element for each (layer,
    head, token), num_rows rows of size bytes. Offsets and strides are bytes; layers and heads
    are numbered as in the whole model, which has heads_of heads."""

    component: str
    offset: int
    size: int
    first_layer: int = 0
    num_layers: int = 1
    layer_stride: int = 0
    first_head: int = 0
    num_heads: int = 1
    heads_of: int = 1
    num_rows: int = 1
    row_stride: int = 0
    head_stride: int = 0
    token_stride: int = 0


@dataclass(frozen=True)
class Region:
    """One strided array of blocks, usually one attention layer. Lengths are bytes.

    A block id stands for per_id blocks of so many tokens each (or ONE_STATE); 0: as the
    layout says. window is how many tokens the layers look back, 0 if all. Without parts a
    peer's region must be just like it.
    """

    name: str
    base: int
    block_len: int
    stride: int
    num_blocks: int
    group: int = 0
    mem: int = DRAM
    per_id: int = 0
    tokens: int = 0
    window: int = 0
    parts: Sequence[Part] = ()


class Member(NamedTuple):
    """A layer in a stock region: where its page lies in a block that has the pages of several
    layers, and the page's bytes; 0 and 0 where vLLM's connector does not tell them apart."""

    name: str
    offset: int = 0
    len: int = 0


@dataclass(frozen=True)
class StockRegion:
    """A region as vLLM's own connector would cut the same memory and tell peers of it. group
    is -1 if several groups' block ids lead here."""

    name: str
    base: int
    block_len: int
    stride: int
    num_blocks: int
    group: int = 0
    mem: int = DRAM
    members: Sequence[Member] = ()


@dataclass(frozen=True)
class Memory:
    """One range of memory to register with NIXL."""

    addr: int
    len: int
    device: int = 0
    mem: int = DRAM


@dataclass(frozen=True)
class Layout:
    """The KV cache of one worker. block_size is tokens per block of a region. stock is what
    peers that run vLLM's own connector are told; if empty, the regions as they are."""

    name: str
    attention_backend: str
    block_size: int
    num_blocks: int
    regions: Sequence[Region]
    memory: Sequence[Memory]
    physical_per_logical: int = 1
    device_id: int = 0
    ssm_sizes: tuple[int, int] = (0, 0)
    stock: Sequence[StockRegion] = ()


def pack_blocks(groups: Sequence[Sequence[int]]) -> tuple[bytes, bytes]:
    """Block ids of one request, one list per transfer group, as an entry carries them: all
    ids, and the number of ids per group, both as packed uint32.

    Raises OverflowError on an id that is no uint32.
    """
    ids = b"".join([array("I", group).tobytes() for group in groups])
    return ids, array("I", [len(group) for group in groups]).tobytes()


def unpack_ids(block_ids: bytes) -> list[int]:
    """The ids of all groups, in order."""
    return array("I", block_ids).tolist()


class Expect(NamedTuple):
    """D: KV that a producer will push. Without block_counts it only keeps P's lease alive."""

    tag: int
    request_id: str
    producer_engine_id: str
    producer_host: str
    producer_port: int
    producer_tp_size: int = 1
    producer_pp_size: int = 1
    transfer_id: str | None = None
    remote_request_id: str | None = None
    block_ids: bytes = b""
    block_counts: bytes = b""


class Offer(NamedTuple):
    """P: the finished blocks of a request, which hold so many tokens of it; 0 if unknown.
    lease_ms 0 is the engine's."""

    tag: int
    request_id: str
    transfer_id: str | None = None
    block_ids: bytes = b""
    block_counts: bytes = b""
    lease_ms: int = 0
    tokens: int = 0


class Decline(NamedTuple):
    """P: a request that will not be offered. Its consumer is told why."""

    request_id: str
    transfer_id: str | None = None
    why: str | None = None


class Event(NamedTuple):
    """The end of one expect or offer. Times are nanoseconds."""

    tag: int
    kind: int
    reason: int
    message: str
    bytes: int
    descriptors: int
    block_pairs: int
    post_ns: int
    write_ns: int
    match_ns: int

    @property
    def failed(self) -> bool:
        return self.kind in (SEND_FAILED, RECEIVE_FAILED)

    def __str__(self) -> str:
        reason = REASONS.get(self.reason, str(self.reason))
        return f"{reason}: {self.message}" if self.message else reason
