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


def typical_of(call: Callable[[], object]) -> float:
    """The median of some calls, in seconds. The interpreter itself takes the GIL away now and
    then, and so may the machine; a call that gives it away waits every time."""
    took = []
    for _ in range(21):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return sorted(took)[10]


@pytest.mark.usefixtures("busy_thread")
def test_submit_and_poll_keep_the_gil() -> None:
    with Node("p", lease_ms=100) as node:
        tags = iter(range(1, 10_000))

        def submit() -> None:
            tag = next(tags)
            node.engine.submit(offers=[Offer(tag, f"r{tag}", None, *pack_blocks([[1]]))])

        assert typical_of(submit) < SWITCH_INTERVAL / 2
        assert typical_of(node.engine.poll) < SWITCH_INTERVAL / 2
        assert typical_of(node.engine.stats) < SWITCH_INTERVAL / 2
        # The measure works: a call that gives the GIL away has to wait for it.
        assert typical_of(node.engine.event_fd) > SWITCH_INTERVAL / 2
