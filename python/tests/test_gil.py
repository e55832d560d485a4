# SPDX-License-Identifier: Apache-2.0
"""The calls of every step stay quick while another thread is busy in Python, as vLLM's
threads are where engine core and worker share a process."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from cache import Node

from nixlpush import Offer, pack_blocks

# Giving the GIL away costs this much to get it back.
SWITCH_INTERVAL = 0.2


@pytest.fixture
def busy_thread() -> Iterator[None]:
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            pass

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    thread = threading.Thread(target=burn)
    thread.start()
    yield
    stop.set()
    thread.join()
    sys.setswitchinterval(before)


def longest_of(call: Callable[[], object], count: int) -> float:
    longest = 0.0
    for _ in range(count):
        start = time.perf_counter()
        call()
        longest = max(longest, time.perf_counter() - start)
    return longest


def is_quick(call: Callable[[], object], count: int) -> bool:
    """Whether no call of so many had to wait. A machine with other work makes one wait now
    and then, but not in every round."""
    return any(longest_of(call, count) < SWITCH_INTERVAL / 2 for _ in range(5))


@pytest.mark.usefixtures("busy_thread")
def test_submit_and_poll_keep_the_gil() -> None:
    with Node("p", lease_ms=100) as node:
        tags = iter(range(1, 10_000))

        def submit() -> None:
            tag = next(tags)
            node.engine.submit(offers=[Offer(tag, f"r{tag}", None, *pack_blocks([[1]]))])

        assert is_quick(submit, 1000)
        assert is_quick(node.engine.poll, 3000)
        assert is_quick(node.engine.stats, 3000)
        # The measure works: a call that gives the GIL away has to wait for it.
        assert longest_of(node.engine.event_fd, 3000) > SWITCH_INTERVAL / 2
