# SPDX-License-Identifier: Apache-2.0
"""The engine of one worker: KV cache in, steps in, events out."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nixlpush import _abi, library, nixl_wheel
from nixlpush.errors import CallError, InvalidArgumentError
from nixlpush.handle import Handle
from nixlpush.library import Library, error_of, new_error
from nixlpush.steps import StepBuffer
from nixlpush.types import (
    REASONS,
    Decline,
    Event,
    Expect,
    Layout,
    Offer,
    Options,
    Part,
    Region,
    StockRegion,
)

_EVENTS_PER_CALL = 64


class Engine(Handle):
    """One engine. Its methods may be called from any thread."""

    _close_function = "nixlpush_engine_close"

    def __init__(self, loaded: Library, value: int, waiting: ctypes.c_uint32) -> None:
        super().__init__(loaded, value)
        # The calls of a scheduler step use memory and function objects made here.
        self._lock = threading.Lock()
        self._waiting = waiting
        self._step = StepBuffer()
        self._events = (_abi.Event * _EVENTS_PER_CALL)()
        self._error = new_error()
        self._error_ref = ctypes.byref(self._error)
        self._submit = loaded.quick.nixlpush_submit
        self._poll = loaded.quick.nixlpush_poll
        self._stats = loaded.quick.nixlpush_engine_stats

    @classmethod
    def open(
        cls, options: Options, *, library_path: str | os.PathLike[str] | None = None
    ) -> Engine:
        """Loads NIXL and starts the engine's threads. Blocks for 0.1 to 2 s.

        library_path: of libnixlpush; default: the file beside this package.
        Raises LibraryNotFoundError, InvalidArgumentError, NixlError, ForkError.
        """
        loaded = library.load(library_path)
        value, waiting = ctypes.c_uint64(), ctypes.c_uint32()
        loaded.call(
            "nixlpush_engine_open",
            ctypes.byref(_options(options, waiting)),
            ctypes.byref(value),
        )
        return cls(loaded, value.value, waiting)

    def register(self, layout: Layout) -> None:
        """Describes and registers the KV cache, once, before the first step."""
        self._call("nixlpush_engine_register", ctypes.byref(_layout(layout)))

    def metadata(self) -> bytes:
        """What peers need to know of this rank; to be published on a side channel."""
        return self._bytes("nixlpush_engine_metadata")

    def dump(self) -> dict[str, Any]:
        """All that the engine holds, for people who look for what hangs. Blocks up to 1 s."""
        return json.loads(self._bytes("nixlpush_engine_dump"))

    def _bytes(self, function: str) -> bytes:
        length = ctypes.c_uint64(4096)
        while True:
            buffer = ctypes.create_string_buffer(length.value)
            try:
                self._call(function, buffer, len(buffer), ctypes.byref(length))
            except CallError as error:
                if error.code != _abi.ESHORT:
                    raise
            else:
                return buffer.raw[: length.value]

    def submit(
        self,
        expects: Sequence[Expect] = (),
        offers: Sequence[Offer] = (),
        cancels: Iterable[int] = (),
        declines: Sequence[Decline] = (),
    ) -> None:
        """Hands over what changed in one scheduler step, all or nothing. Does not block."""
        value = self._live()
        with self._lock:
            step = self._step.fill(expects, offers, cancels, declines)
            result = self._submit(value, step, self._error_ref)
            if result < 0:
                raise error_of(result, self._error)

    def poll(self) -> list[Event]:
        """All events that wait, oldest first. Does not block."""
        value = self._live()
        events: list[Event] = []
        if not self._waiting.value:
            return events
        with self._lock:
            while True:
                count = self._poll(
                    value,
                    self._events,
                    _EVENTS_PER_CALL,
                    ctypes.sizeof(_abi.Event),
                    self._error_ref,
                )
                if count < 0:
                    raise error_of(count, self._error)
                for i in range(count):
                    events.append(_event(self._events[i]))
                if count < _EVENTS_PER_CALL:
                    return events

    def event_fd(self) -> int:
        """A descriptor that is readable while events wait. Do not read or close it."""
        return self._call("nixlpush_event_fd")

    def stats(self) -> dict[str, int]:
        """Counters since open and what is held right now; names as in the header, and
        `failures: <reason>` for each reason."""
        value = self._live()
        stats = _abi.Stats(struct_size=ctypes.sizeof(_abi.Stats))
        error = new_error()
        result = self._stats(value, ctypes.byref(stats), ctypes.byref(error))
        if result < 0:
            raise error_of(result, error)
        counters = {name: getattr(stats, name) for name, *_ in _abi.Stats._fields_[2:-1]}
        failures = stats.failures
        reasons = {f"failures: {name}": failures[code] for code, name in REASONS.items()}
        return counters | reasons


def _event(event: _abi.Event) -> Event:
    return Event(
        event.tag,
        event.kind,
        event.reason,
        event.message.decode("utf-8", "replace"),
        event.bytes,
        event.descriptors,
        event.block_pairs,
        event.post_ns,
        event.write_ns,
        event.match_ns,
    )


def _text(value: str | None) -> bytes | None:
    if value is not None and "\0" in value:
        raise InvalidArgumentError(_abi.EINVAL, f"{value!r} holds a NUL")
    return None if value is None else value.encode()


def _params(params: Mapping[str, str]) -> ctypes.Array[_abi.Param]:
    return (_abi.Param * len(params))(
        *(_abi.Param(key.encode(), value.encode()) for key, value in params.items())
    )


def _options(options: Options, waiting: ctypes.c_uint32) -> _abi.Options:
    backends = (_abi.Backend * len(options.backends))(
        *(
            _abi.Backend(backend.name.encode(), _params(backend.params), len(backend.params))
            for backend in options.backends
        )
    )
    factors = options.compat_factors
    for name, kind in _abi.Options._fields_:  # ctypes cuts what does not fit
        value = getattr(options, name, 0)
        if kind is ctypes.c_uint32 and not 0 <= value < 1 << 32:
            raise InvalidArgumentError(_abi.EINVAL, f"{name} is {value}, not a 32-bit number")
    return _abi.Options(
        struct_size=ctypes.sizeof(_abi.Options),
        tp_rank=options.tp_rank,
        tp_size=options.tp_size,
        pp_rank=options.pp_rank,
        pp_size=options.pp_size,
        side_channel_port=options.side_channel_port,
        engine_id=_text(options.engine_id),
        side_channel_host=_text(options.side_channel_host),
        nixl_library=_text(options.nixl_library or nixl_wheel.find()),
        wheel_root=_text(options.wheel_root),
        backends=backends,
        num_backends=len(backends),
        compat_hash=_text(options.compat_hash),
        compat_factors=_params(factors),
        num_compat_factors=len(factors),
        ignore_compat=options.ignore_compat,
        writers=options.writers,
        max_procs=options.max_procs,
        lease_ms=options.lease_ms,
        receive_timeout_ms=options.receive_timeout_ms,
        handshake_timeout_ms=options.handshake_timeout_ms,
        heartbeat_ms=options.heartbeat_ms,
        peer_ttl_ms=options.peer_ttl_ms,
        events_waiting=ctypes.pointer(waiting),
    )


def _part(part: Part) -> _abi.Part:
    return _abi.Part(
        component=part.component.encode(),
        offset=part.offset,
        size=part.size,
        first_layer=part.first_layer,
        num_layers=part.num_layers,
        layer_stride=part.layer_stride,
        first_head=part.first_head,
        num_heads=part.num_heads,
        heads_of=part.heads_of,
        num_rows=part.num_rows,
        row_stride=part.row_stride,
        head_stride=part.head_stride,
        token_stride=part.token_stride,
    )


def _region(region: Region) -> _abi.Region:
    return _abi.Region(
        struct_size=ctypes.sizeof(_abi.Region),
        group=region.group,
        base=region.base,
        block_len=region.block_len,
        stride=region.stride,
        num_blocks=region.num_blocks,
        mem=region.mem,
        name=region.name.encode(),
        per_id=region.per_id,
        tokens=region.tokens,
        window=region.window,
        parts=(_abi.Part * len(region.parts))(*map(_part, region.parts)),
        num_parts=len(region.parts),
    )


def _stock_region(region: StockRegion) -> _abi.StockRegion:
    members = [_abi.Member(m.name.encode(), m.offset, m.len) for m in region.members]
    return _abi.StockRegion(
        struct_size=ctypes.sizeof(_abi.StockRegion),
        group=region.group,
        base=region.base,
        block_len=region.block_len,
        stride=region.stride,
        num_blocks=region.num_blocks,
        mem=region.mem,
        name=region.name.encode(),
        members=(_abi.Member * len(members))(*members),
        num_members=len(members),
    )


def _layout(layout: Layout) -> _abi.Layout:
    regions = (_abi.Region * len(layout.regions))(*map(_region, layout.regions))
    stock = (_abi.StockRegion * len(layout.stock))(*map(_stock_region, layout.stock))
    memory = (_abi.Memory * len(layout.memory))(
        *(
            _abi.Memory(addr=range_.addr, len=range_.len, device=range_.device, mem=range_.mem)
            for range_ in layout.memory
        )
    )
    return _abi.Layout(
        struct_size=ctypes.sizeof(_abi.Layout),
        block_size=layout.block_size,
        num_blocks=layout.num_blocks,
        physical_per_logical=layout.physical_per_logical,
        device_id=layout.device_id,
        ssm_sizes=layout.ssm_sizes,
        name=_text(layout.name),
        attention_backend=_text(layout.attention_backend),
        regions=regions,
        num_regions=len(regions),
        memory=memory,
        num_memory=len(memory),
        stock_regions=stock,
        num_stock_regions=len(stock),
    )
