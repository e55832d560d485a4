# SPDX-License-Identifier: Apache-2.0
"""Opening and closing a hundred times leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable


def test_a_hundred_engines_leave_no_descriptor_and_no_thread(run_script: Callable) -> None:
    done = run_script(
        """
        import os
        import threading
        from nixlpush import library
        from cache import Node

        def counts():
            return (
                len(os.listdir("/proc/self/fd")),
                len(os.listdir("/proc/self/task")),
                threading.active_count(),
                library.load().open_handles(),
            )

        seen = []
        for i in range(100):
            with Node(f"e{i}"):
                pass
            seen.append(counts())
        warm, last = seen[20], seen[-1]
        print(warm, last)
        print(last[0] <= warm[0], last[1] <= warm[1] + 2, last[2] == warm[2], last[3] == 0)
        """,
        timeout=300,
    )
    assert done.lines[-1] == "True True True True", done.stdout
