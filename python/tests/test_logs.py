# SPDX-License-Identifier: Apache-2.0
"""Log lines of the library reach Python's logging, whatever stderr is."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from nixlpush import logs

# Something that makes the library log: a peer that cannot be reached.
NOISE = """
def make_noise(node, count):
    for i in range(count):
        node.engine.submit(expects=[nixlpush.Expect(
            1000 + i, f"r{i}", f"nowhere-{i}", "127.0.0.1", 1,
            block_ids=b"\\1\\0\\0\\0", block_counts=b"\\1\\0\\0\\0")])
    return node.wait(count)
"""


def test_lines_become_records(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="nixlpush"):
        logs.emit("10\ta\tb")
        logs.emit("40\tbroken")
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.DEBUG, "a\tb"),
        (logging.ERROR, "broken"),
    ]


def test_a_line_that_cannot_be_logged_is_no_error() -> None:
    logs.emit("no level")


def test_lines_of_the_library_arrive(run_script: Callable) -> None:
    done = run_script(
        NOISE
        + """
import logging, sys
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s|%(message)s")
import nixlpush
from cache import Node
with Node("d", handshake_timeout_ms=200, receive_timeout_ms=500) as node:
    make_noise(node, 3)
"""
    )
    lines = [line for line in done.lines if line.startswith("nixlpush|")]
    assert any("nowhere-" in line for line in lines), done.stdout


def test_a_closed_stderr_does_not_end_the_process(run_script: Callable) -> None:
    done = run_script(
        NOISE
        + """
import logging, os, sys
read, write = os.pipe()
os.dup2(write, 2)
os.close(write)
os.close(read)
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
import nixlpush
from cache import Node
with Node("d", handshake_timeout_ms=200, receive_timeout_ms=500) as node:
    events = make_noise(node, 20)
print(len(events), all(event.failed for event in events))
"""
    )
    assert done.lines == ["20 True"]
