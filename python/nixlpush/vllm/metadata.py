# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's connector tells the workers', and the other way round at start."""

from __future__ import annotations

from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
)

from nixlpush.types import Decline, Expect, Offer


class StepMetadata(KVConnectorMetadata):
    """What changed in one scheduler step. vLLM pickles it to every worker, every step.

    rejected: requests that wait for KV which cannot be asked for, each with its block ids.
    """

    def __init__(
        self,
        expects: tuple[Expect, ...] = (),
        offers: tuple[Offer, ...] = (),
        cancels: tuple[int, ...] = (),
        rejected: tuple[tuple[str, bytes], ...] = (),
        declines: tuple[Decline, ...] = (),
    ) -> None:
        self.expects = expects
        self.offers = offers
        self.cancels = cancels
        self.rejected = rejected
        self.declines = declines

    def __bool__(self) -> bool:
        return bool(
            self.expects or self.offers or self.cancels or self.rejected or self.declines
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Named tuples would be pickled by the names of their classes, which costs more than
        # everything else here.
        if not self:
            return StepMetadata, ()
        entries = self.expects, self.offers, self.declines
        plain = (tuple(map(tuple, kind)) for kind in entries)
        return _restore, (*plain, self.cancels, self.rejected)


def _restore(
    expects: tuple[tuple, ...],
    offers: tuple[tuple, ...],
    declines: tuple[tuple, ...],
    cancels: tuple[int, ...],
    rejected: tuple[tuple[str, bytes], ...],
) -> StepMetadata:
    return StepMetadata(
        tuple(map(Expect._make, expects)),
        tuple(map(Offer._make, offers)),
        cancels,
        rejected,
        tuple(map(Decline._make, declines)),
    )


@dataclass
class HandshakeMetadata(KVConnectorHandshakeMetadata):
    """What a worker's engine wants published on the side channel."""

    payload: bytes
