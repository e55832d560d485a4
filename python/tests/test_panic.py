# SPDX-License-Identifier: Apache-2.0
"""A panic in Go ends the engine, not the process."""

from __future__ import annotations

from collections.abc import Callable


def test_the_host_survives_and_requests_fail(run_script: Callable, panic_library: str) -> None:
    done = run_script(
        f"""
        import ctypes
        import nixlpush
        from nixlpush import library, pack_blocks
        from cache import Node

        path = {panic_library!r}
        library.load(path)
        with Node("d", library_path=path) as node:
            blocks = pack_blocks([[1]])
            waiting = nixlpush.Expect(
                1, "r", "nobody", "127.0.0.1", 1, 1, 1, None, None, *blocks)
            node.engine.submit(expects=[waiting])
            panic = library.load().dll.nixlpush_test_panic
            panic.argtypes = [ctypes.c_uint64]
            panic(node.engine._value)
            (event,) = node.wait(timeout=20)
            print(event.tag, event.kind == nixlpush.RECEIVE_FAILED)
            try:
                node.engine.submit(expects=[waiting._replace(tag=2)])
            except nixlpush.InternalError as error:
                print("refused:", error)
        print("alive")
        """,
        timeout=60,
    )
    assert done.lines[0] == "1 True"
    assert done.lines[1].startswith("refused: ")
    assert done.lines[-1] == "alive"
