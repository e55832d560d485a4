# SPDX-License-Identifier: Apache-2.0
"""One scheduler step as C structs, in memory that is used again for every step."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from sys import byteorder

from nixlpush import _abi
from nixlpush.errors import InvalidArgumentError
from nixlpush.types import Decline, Expect, Offer


def _packer(struct: type[ctypes.Structure]) -> Struct:
    """Packs all fields of a struct at once, in order; pointers are passed as addresses."""
    packed = Struct("=" + _codes(struct))
    if packed.size != ctypes.sizeof(struct):
        raise TypeError(f"{struct.__name__} has gaps between its fields")
    return packed


def _codes(struct: type[ctypes.Structure]) -> str:
    codes = ""
    for _, kind, *_ in struct._fields_:
        if issubclass(kind, ctypes.Structure):
            codes += _codes(kind)
        else:
            codes += "I" if kind is ctypes.c_uint32 else "Q"
    return codes


_STEP = _packer(_abi.Step)
_EXPECT = _packer(_abi.Expect)
_OFFER = _packer(_abi.Offer)
_DECLINE = _packer(_abi.Decline)


class StepBuffer:
    """Writes a `nixlpush_step` and all it points to into one buffer. Not thread-safe.

    An entry is packed in one call: setting its fields one by one through ctypes costs
    several times as much, and the engine thread pays for it.
    """

    def __init__(self) -> None:
        self._allocate(64 << 10)

    def _allocate(self, size: int) -> None:
        self._memory = ctypes.create_string_buffer(size)
        self._view = memoryview(self._memory).cast("B")
        self._base = ctypes.addressof(self._memory)

    def fill(
        self,
        expects: Sequence[Expect],
        offers: Sequence[Offer],
        cancels: Iterable[int],
        declines: Sequence[Decline],
    ) -> int:
        """The address of the step, to be passed to nixlpush_submit; valid until the next."""
        tags = array("Q", cancels)  # once: it may be an iterator
        while True:
            try:
                return self._fill(expects, offers, tags, declines)
            except BufferError:
                self._allocate(2 * len(self._view))

    def _fill(
        self,
        expects: Sequence[Expect],
        offers: Sequence[Offer],
        cancels: array[int],
        declines: Sequence[Decline],
    ) -> int:
        first_offer = _STEP.size + _EXPECT.size * len(expects)
        first_decline = first_offer + _OFFER.size * len(offers)
        self._end = first_decline + _DECLINE.size * len(declines)
        at = _STEP.size
        for expect in expects:
            self._pack_expect(at, expect)
            at += _EXPECT.size
        for offer in offers:
            self._pack_offer(at, offer)
            at += _OFFER.size
        for decline in declines:
            self._pack_decline(at, decline)
            at += _DECLINE.size
        _STEP.pack_into(
            self._memory,
            0,
            _STEP.size,
            0,
            self._base + _STEP.size,
            len(expects),
            self._base + first_offer,
            len(offers),
            self._place(cancels.tobytes()) if cancels else 0,
            len(cancels),
            self._base + first_decline,
            len(declines),
        )
        return self._base

    def _pack_expect(self, at: int, expect: Expect) -> None:
        self._check(at + _EXPECT.size)
        _check_blocks(expect)
        _EXPECT.pack_into(
            self._memory,
            at,
            _EXPECT.size,
            expect.producer_port,
            expect.producer_tp_size,
            expect.producer_pp_size,
            expect.tag,
            self._text(expect.request_id),
            self._text(expect.transfer_id),
            self._text(expect.remote_request_id),
            self._text(expect.producer_engine_id),
            self._text(expect.producer_host),
            self._place(expect.block_ids),
            self._place(expect.block_counts),
            len(expect.block_counts) // 4,
            0,
        )

    def _pack_offer(self, at: int, offer: Offer) -> None:
        self._check(at + _OFFER.size)
        _check_blocks(offer)
        _OFFER.pack_into(
            self._memory,
            at,
            _OFFER.size,
            offer.lease_ms,
            offer.tag,
            self._text(offer.request_id),
            self._text(offer.transfer_id),
            self._place(offer.block_ids),
            self._place(offer.block_counts),
            len(offer.block_counts) // 4,
            0,
            offer.tokens,
        )

    def _pack_decline(self, at: int, decline: Decline) -> None:
        self._check(at + _DECLINE.size)
        _DECLINE.pack_into(
            self._memory,
            at,
            _DECLINE.size,
            0,
            self._text(decline.request_id),
            self._text(decline.transfer_id),
            self._text(decline.why),
        )

    def _text(self, text: str | None) -> int:
        """The address of a C string; 0 for none."""
        if not text:
            return 0
        if "\0" in text:
            raise InvalidArgumentError(_abi.EINVAL, f"{text!r} holds a NUL")
        return self._place(text.encode() + b"\0")

    def _place(self, data: bytes) -> int:
        """Copies data behind what is there, at an address that suits every type."""
        start = self._end
        end = start + len(data)
        self._check(end)
        self._view[start:end] = data
        self._end = (end + 7) & ~7
        return self._base + start

    def _check(self, end: int) -> None:
        if end > len(self._view):
            raise BufferError


def _check_blocks(entry: Expect | Offer) -> None:
    """The library reads as many ids as the counts say."""
    counts = entry.block_counts
    if len(counts) == 4:
        count = int.from_bytes(counts, byteorder)
    else:
        count = sum(array("I", counts))
    if 4 * count != len(entry.block_ids):
        raise InvalidArgumentError(
            _abi.EINVAL,
            f"request {entry.request_id}: counts of {count} block ids, "
            f"{len(entry.block_ids)} bytes of ids",
        )
