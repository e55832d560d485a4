# SPDX-License-Identifier: Apache-2.0
"""nixlpush: push the KV cache of a prompt from a prefill engine to a decode engine.

`Engine` and `SideChannel` are thin wrappers over `libnixlpush.so.1`. Importing this package
loads nothing: the library is loaded by the first `open`, in the process that uses it,
because a Go library does not survive a fork. `nixlpush.vllm` is the connector for vLLM.
"""

from importlib.metadata import PackageNotFoundError, version

from nixlpush.engine import Engine
from nixlpush.errors import (
    AbiMismatchError,
    CallError,
    ClosedError,
    ForkError,
    InternalError,
    InvalidArgumentError,
    LibraryNotFoundError,
    NetworkError,
    NixlError,
    NixlPushError,
    StateError,
    UnknownHandleError,
)
from nixlpush.sidechannel import SideChannel
from nixlpush.types import (
    DRAM,
    ONE_STATE,
    RECEIVE_FAILED,
    RECEIVED,
    SEND_FAILED,
    SENT,
    VRAM,
    Backend,
    Event,
    Expect,
    Layout,
    Member,
    Memory,
    Offer,
    Options,
    Part,
    Region,
    StockRegion,
    pack_blocks,
    unpack_ids,
)

try:
    __version__ = version("nixlpush")
except PackageNotFoundError:  # run from a source tree
    __version__ = "0.0.0"

__all__ = [
    "DRAM",
    "ONE_STATE",
    "RECEIVED",
    "RECEIVE_FAILED",
    "SEND_FAILED",
    "SENT",
    "VRAM",
    "AbiMismatchError",
    "Backend",
    "CallError",
    "ClosedError",
    "Engine",
    "Event",
    "Expect",
    "ForkError",
    "InternalError",
    "InvalidArgumentError",
    "Layout",
    "LibraryNotFoundError",
    "Member",
    "Memory",
    "NetworkError",
    "NixlError",
    "NixlPushError",
    "Offer",
    "Options",
    "Part",
    "Region",
    "SideChannel",
    "StateError",
    "StockRegion",
    "UnknownHandleError",
    "pack_blocks",
    "unpack_ids",
]
