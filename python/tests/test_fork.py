# SPDX-License-Identifier: Apache-2.0
"""A forked child never enters the Go runtime of its parent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

CHILD = """
import os, sys, time, warnings
import nixlpush

channel = nixlpush.SideChannel.open("127.0.0.1", 0)
parent = os.getpid()
child = os.fork()
if child == 0:
    start = time.monotonic()
    try:
        {use}
        print("no error")
    except nixlpush.ForkError as error:
        text = str(error)
        both = f"pid {{parent}}" in text, f"pid {{os.getpid()}}" in text
        print(*both, time.monotonic() - start < 1)
    sys.stdout.flush()
    {leave}
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
channel.close()
"""


@pytest.mark.parametrize(
    "use",
    [
        "channel.publish(b'x')",
        "channel.port",
        "channel.close()",
        "nixlpush.SideChannel.open('127.0.0.1', 0)",
        "nixlpush.Engine.open(nixlpush.Options('e', '127.0.0.1', 1))",
    ],
)
def test_use_in_a_child_raises_and_says_why(run_script: Callable, use: str) -> None:
    done = run_script(CHILD.format(use=use, leave="os._exit(0)"), timeout=20)
    assert done.lines == ["True True True", "0"]


@pytest.mark.parametrize("leave", ["sys.exit(0)", "del channel; sys.exit(0)"])
def test_a_child_that_inherits_a_handle_ends_normally(
    run_script: Callable, leave: str
) -> None:
    """Neither atexit nor __del__ of the child may enter Go or complain."""
    done = run_script(CHILD.format(use="channel.port", leave=leave), timeout=20)
    assert done.lines == ["True True True", "0"]
    assert done.stderr == ""


def test_opening_in_a_child_works_if_the_parent_has_not_loaded(run_script: Callable) -> None:
    done = run_script(
        """
        import os, sys
        import nixlpush

        child = os.fork()
        if child == 0:
            with nixlpush.SideChannel.open("127.0.0.1", 0) as channel:
                print(channel.port > 0)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        with nixlpush.SideChannel.open("127.0.0.1", 0) as channel:
            print(channel.port > 0)
        """,
        timeout=20,
    )
    assert sorted(done.lines) == ["0", "True", "True"]


def test_the_parent_works_on_after_a_fork(run_script: Callable) -> None:
    done = run_script(
        """
        import os
        import nixlpush

        with nixlpush.SideChannel.open("127.0.0.1", 0) as channel:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
                channel.publish(b"x")
            print(channel.port > 0)
        """,
        timeout=20,
    )
    assert done.lines == ["True"]
