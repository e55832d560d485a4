# SPDX-License-Identifier: Apache-2.0
"""include/nixlpush.h for ctypes: constants, structs and prototypes, in the header's order.

Nothing here loads the library. A test compares sizes and offsets with a C compiler's.
"""

from __future__ import annotations

from ctypes import (
    CDLL,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)

ABI_VERSION = 1000

OK = 0
EINVAL = -1
EHANDLE = -2
ESTATE = -3
ENIXL = -4
ENETWORK = -5
ESHORT = -6
EINTERNAL = -7

DRAM = 0
VRAM = 1

ONE_STATE = 0xFFFFFFFF

SENT = 1
SEND_FAILED = 2
RECEIVED = 3
RECEIVE_FAILED = 4

REASON_NONE = 0
REASON_DEADLINE = 1
REASON_LEASE_EXPIRED = 2
REASON_UNREACHABLE = 3
REASON_INCOMPATIBLE = 4
REASON_WRITE_FAILED = 5
REASON_CANCELLED = 6
REASON_CLOSED = 7
REASON_INTERNAL = 8


class Error(Structure):
    _fields_ = [("struct_size", c_uint32), ("code", c_int32), ("message", c_char * 1024)]


class Param(Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class Backend(Structure):
    _fields_ = [("name", c_char_p), ("params", POINTER(Param)), ("num_params", c_uint64)]


class Options(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("tp_rank", c_uint32),
        ("tp_size", c_uint32),
        ("pp_rank", c_uint32),
        ("pp_size", c_uint32),
        ("side_channel_port", c_uint32),
        ("engine_id", c_char_p),
        ("side_channel_host", c_char_p),
        ("nixl_library", c_char_p),
        ("wheel_root", c_char_p),
        ("backends", POINTER(Backend)),
        ("num_backends", c_uint64),
        ("compat_hash", c_char_p),
        ("compat_factors", POINTER(Param)),
        ("num_compat_factors", c_uint64),
        ("ignore_compat", c_uint32),
        ("writers", c_uint32),
        ("max_procs", c_uint32),
        ("lease_ms", c_uint32),
        ("receive_timeout_ms", c_uint32),
        ("handshake_timeout_ms", c_uint32),
        ("heartbeat_ms", c_uint32),
        ("peer_ttl_ms", c_int64),
        ("events_waiting", POINTER(c_uint32)),
    ]


class Part(Structure):
    _fields_ = [
        ("component", c_char_p),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("first_layer", c_uint32),
        ("num_layers", c_uint32),
        ("layer_stride", c_uint64),
        ("first_head", c_uint32),
        ("num_heads", c_uint32),
        ("heads_of", c_uint32),
        ("num_rows", c_uint32),
        ("row_stride", c_uint64),
        ("head_stride", c_uint64),
        ("token_stride", c_uint64),
    ]


class Region(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("group", c_int32),
        ("base", c_uint64),
        ("block_len", c_uint64),
        ("stride", c_uint64),
        ("num_blocks", c_uint32),
        ("mem", c_uint32),
        ("name", c_char_p),
        ("per_id", c_uint32),
        ("tokens", c_uint32),
        ("window", c_uint32),
        ("reserved", c_uint32),
        ("parts", POINTER(Part)),
        ("num_parts", c_uint64),
    ]


class Member(Structure):
    _fields_ = [("name", c_char_p), ("offset", c_uint64), ("len", c_uint64)]


class StockRegion(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("group", c_int32),
        ("base", c_uint64),
        ("block_len", c_uint64),
        ("stride", c_uint64),
        ("num_blocks", c_uint32),
        ("mem", c_uint32),
        ("name", c_char_p),
        ("members", POINTER(Member)),
        ("num_members", c_uint64),
    ]


class Memory(Structure):
    _fields_ = [
        ("addr", c_uint64),
        ("len", c_uint64),
        ("device", c_uint64),
        ("mem", c_uint32),
        ("reserved", c_uint32),
    ]


class Layout(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("block_size", c_uint32),
        ("num_blocks", c_uint32),
        ("physical_per_logical", c_uint32),
        ("device_id", c_uint32),
        ("reserved", c_uint32),
        ("ssm_sizes", c_uint64 * 2),
        ("name", c_char_p),
        ("attention_backend", c_char_p),
        ("regions", POINTER(Region)),
        ("num_regions", c_uint64),
        ("memory", POINTER(Memory)),
        ("num_memory", c_uint64),
        ("stock_regions", POINTER(StockRegion)),
        ("num_stock_regions", c_uint64),
    ]


class Blocks(Structure):
    _fields_ = [
        ("ids", POINTER(c_uint32)),
        ("counts", POINTER(c_uint32)),
        ("num_groups", c_uint32),
        ("reserved", c_uint32),
    ]


class Expect(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("producer_port", c_uint32),
        ("producer_tp_size", c_uint32),
        ("producer_pp_size", c_uint32),
        ("tag", c_uint64),
        ("request_id", c_char_p),
        ("transfer_id", c_char_p),
        ("remote_request_id", c_char_p),
        ("producer_engine_id", c_char_p),
        ("producer_host", c_char_p),
        ("blocks", Blocks),
    ]


class Offer(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("lease_ms", c_uint32),
        ("tag", c_uint64),
        ("request_id", c_char_p),
        ("transfer_id", c_char_p),
        ("blocks", Blocks),
        ("tokens", c_uint64),
    ]


class Step(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("expects", POINTER(Expect)),
        ("num_expects", c_uint64),
        ("offers", POINTER(Offer)),
        ("num_offers", c_uint64),
        ("cancels", POINTER(c_uint64)),
        ("num_cancels", c_uint64),
    ]


class Event(Structure):
    _fields_ = [
        ("tag", c_uint64),
        ("kind", c_uint32),
        ("reason", c_uint32),
        ("bytes", c_uint64),
        ("descriptors", c_uint64),
        ("block_pairs", c_uint64),
        ("post_ns", c_uint64),
        ("write_ns", c_uint64),
        ("match_ns", c_uint64),
        ("message", c_char * 256),
    ]


class Stats(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32)] + [
        (name, c_uint64)
        for name in (
            "expects",
            "offers",
            "registrations",
            "writes",
            "peers",
            "events",
            "goroutines",
            "heap_bytes",
            "offer_first",
            "registration_first",
            "sent",
            "send_failed",
            "received",
            "receive_failed",
            "bytes",
            "descriptors",
            "block_pairs",
            "failed_transfers",
            "failed_notifications",
            "failed_handshakes",
            "expired_offers",
            "notifications_after_end",
            "malformed_notifications",
            "heartbeats_sent",
            "heartbeats_received",
            "leases_renewed",
        )
    ]


# Structs and handles are passed by address. Address parameters are plain void pointers so
# that byref() and ready-made pointers both fit and no conversion runs per call.
_PTR = c_void_p
_HANDLE = c_uint64

PROTOTYPES: dict[str, tuple[type | None, list[type]]] = {
    "nixlpush_abi_version": (c_uint32, []),
    "nixlpush_version": (c_char_p, []),
    "nixlpush_engine_open": (c_int32, [_PTR, _PTR, _PTR]),
    "nixlpush_engine_close": (c_int32, [_HANDLE, _PTR]),
    "nixlpush_engine_register": (c_int32, [_HANDLE, _PTR, _PTR]),
    "nixlpush_engine_metadata": (c_int32, [_HANDLE, _PTR, c_uint64, _PTR, _PTR]),
    "nixlpush_submit": (c_int32, [_HANDLE, _PTR, _PTR]),
    "nixlpush_event_fd": (c_int32, [_HANDLE, _PTR]),
    "nixlpush_poll": (c_int32, [_HANDLE, _PTR, c_uint64, c_uint64, _PTR]),
    "nixlpush_sidechannel_open": (c_int32, [c_char_p, c_uint32, _PTR, _PTR]),
    "nixlpush_sidechannel_port": (c_int32, [_HANDLE, _PTR]),
    "nixlpush_sidechannel_publish": (
        c_int32,
        [_HANDLE, c_uint32, c_uint32, c_char_p, c_uint64, _PTR],
    ),
    "nixlpush_sidechannel_close": (c_int32, [_HANDLE, _PTR]),
    "nixlpush_engine_stats": (c_int32, [_HANDLE, _PTR, _PTR]),
    "nixlpush_open_handles": (c_uint64, []),
    "nixlpush_log_fd": (c_int32, []),
    "nixlpush_drain_log": (c_int32, [_PTR, c_uint64]),
    "nixlpush_log_level": (c_int32, [c_int32]),
}


def declare(dll: CDLL) -> None:
    """Sets result and argument types of every function, once per loaded library.

    Raises AttributeError if the library lacks one.
    """
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(dll, name)
        function.restype = result
        function.argtypes = arguments
