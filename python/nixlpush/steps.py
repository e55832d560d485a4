# SPDX-License-Identifier: Apache-2.0
"""One scheduler step as C structs, in arrays that are used again for every step."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence

from nixlpush import _abi
from nixlpush.types import Expect, Offer

_EXPECT_SIZE = ctypes.sizeof(_abi.Expect)
_OFFER_SIZE = ctypes.sizeof(_abi.Offer)


class StepBuffer:
    """Fills a `nixlpush_step`. Not thread-safe; what `fill` returns is valid until the next.

    Block ids are packed bytes and enter the structs as pointers, so the cost of an entry
    does not depend on how many blocks it names.
    """

    def __init__(self) -> None:
        self._expects = (_abi.Expect * 8)()
        self._offers = (_abi.Offer * 8)()
        self._step = _abi.Step(struct_size=ctypes.sizeof(_abi.Step))
        self._step.expects = self._expects
        self._step.offers = self._offers
        self._step_ref = ctypes.byref(self._step)

    def fill(
        self, expects: Sequence[Expect], offers: Sequence[Offer], cancels: Iterable[int]
    ) -> object:
        """A reference to the step, to be passed to nixlpush_submit."""
        self._reserve(len(expects), len(offers))
        for target, expect in zip(self._expects, expects):
            _fill_expect(target, expect)
        for target, offer in zip(self._offers, offers):
            _fill_offer(target, offer)
        tags = array("Q", cancels)
        step = self._step
        step.num_expects = len(expects)
        step.num_offers = len(offers)
        step.cancels = tags.tobytes()
        step.num_cancels = len(tags)
        return self._step_ref

    def _reserve(self, expects: int, offers: int) -> None:
        if expects > len(self._expects):
            self._expects = (_abi.Expect * (2 * expects))()
            self._step.expects = self._expects
        if offers > len(self._offers):
            self._offers = (_abi.Offer * (2 * offers))()
            self._step.offers = self._offers


def _fill_expect(target: _abi.Expect, expect: Expect) -> None:
    target.struct_size = _EXPECT_SIZE
    target.producer_port = expect.producer_port
    target.producer_tp_size = expect.producer_tp_size
    target.producer_pp_size = expect.producer_pp_size
    target.tag = expect.tag
    target.request_id = expect.request_id.encode()
    target.transfer_id = _optional(expect.transfer_id)
    target.remote_request_id = _optional(expect.remote_request_id)
    target.producer_engine_id = expect.producer_engine_id.encode()
    target.producer_host = expect.producer_host.encode()
    _fill_blocks(target.blocks, expect.block_ids, expect.block_counts)


def _fill_offer(target: _abi.Offer, offer: Offer) -> None:
    target.struct_size = _OFFER_SIZE
    target.lease_ms = offer.lease_ms
    target.tag = offer.tag
    target.request_id = offer.request_id.encode()
    target.transfer_id = _optional(offer.transfer_id)
    _fill_blocks(target.blocks, offer.block_ids, offer.block_counts)


def _optional(text: str | None) -> bytes | None:
    return text.encode() if text else None


def _fill_blocks(target: _abi.Blocks, ids: bytes, counts: bytes) -> None:
    target.ids = ids
    target.counts = counts
    target.num_groups = len(counts) // 4
