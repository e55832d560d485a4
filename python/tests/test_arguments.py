# SPDX-License-Identifier: Apache-2.0
"""What the package must refuse, or not lose."""

from __future__ import annotations

from array import array

import pytest
from cache import Node

from nixlpush import Engine, InvalidArgumentError, Offer, Options, pack_blocks


def test_a_tag_of_an_iterator_survives_the_growth_of_the_buffer() -> None:
    with Node("e", lease_ms=600_000) as node:
        node.engine.submit(offers=[Offer(1, "r", None, *pack_blocks([[1]]))])
        big = Offer(2, "big", None, *pack_blocks([[1] * 20_000]))
        node.engine.submit(offers=[big], cancels=iter([1]))
        assert [event.tag for event in node.wait(1, 5)] == [1]


@pytest.mark.parametrize("count", [2, 1 << 24])
def test_counts_beyond_the_ids_are_refused(count: int) -> None:
    with Node("e") as node:
        bad = Offer(1, "r", None, b"\1\0\0\0", array("I", [count]).tobytes())
        with pytest.raises(InvalidArgumentError):
            node.engine.submit(offers=[bad])


def test_a_nul_in_an_id_is_refused() -> None:
    with Node("e") as node, pytest.raises(InvalidArgumentError, match="NUL"):
        node.engine.submit(offers=[Offer(1, "a\0b", None, *pack_blocks([[1]]))])


@pytest.mark.parametrize(
    "options",
    [{"max_procs": 1 << 31}, {"max_procs": 100_000}, {"lease_ms": -1}, {"lease_ms": 1 << 32}],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        Engine.open(Options("e", "127.0.0.1", 1, **options))
