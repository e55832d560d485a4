# SPDX-License-Identifier: Apache-2.0
"""A panic in Go ends the engine, not the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

# Where the test library panics: in the call itself, in the loop of the engine that comes next
# (so there is only one), in a handshake (which needs a peer).
PLACES = {"export": 1, "loop": 2, "handshake": 4}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_host_survives_and_requests_fail(
    run_script: Callable, panic_library: str, place: int
) -> None:
    done = run_script(
        f"""
        import contextlib
        import nixlpush
        from nixlpush import library, pack_blocks
        from cache import Node

        path = {panic_library!r}
        panic = library.load(path).dll.nixlpush_test_panic
        with contextlib.ExitStack() as stack:
            node = stack.enter_context(Node("d", library_path=path))
            port = 1
            if {place} == {PLACES["handshake"]}:
                port = stack.enter_context(Node("p", library_path=path)).channel.port
            where = "p", "127.0.0.1", port, 1, 1, None, None
            waiting = nixlpush.Expect(1, "r", *where, *pack_blocks([[1]]))
            panic({place})
            try:
                node.engine.submit(expects=[waiting])
                (event,) = node.wait(timeout=20)
                print(event.tag, event.kind == nixlpush.RECEIVE_FAILED, event)
            except nixlpush.InternalError as error:
                print("1 True", error)
            for _ in range(2):
                try:
                    node.engine.submit(expects=[waiting._replace(tag=2)])
                    print("accepted")
                except nixlpush.InternalError as error:
                    print("refused:", error)
            node.engine.poll()
            node.engine.stats()
        print("alive")
        """
    )
    assert done.lines[0].startswith("1 True"), done.stdout
    assert [line.split(":")[0] for line in done.lines[1:3]] == ["refused", "refused"]
    assert done.lines[-1] == "alive"


def test_what_is_held_still_ends_when_a_call_panics(
    run_script: Callable, panic_library: str
) -> None:
    done = run_script(
        f"""
        import nixlpush
        from nixlpush import _abi, library, pack_blocks
        from cache import Node

        path = {panic_library!r}
        panic = library.load(path).dll.nixlpush_test_panic
        limits = dict(library_path=path, receive_timeout_ms=500, lease_ms=500)
        with Node("d", **limits) as node, Node("p", **limits) as peer:
            where = "p", "127.0.0.1", peer.channel.port, 1, 1, None, None
            node.engine.submit(
                expects=[nixlpush.Expect(1, "r", *where, *pack_blocks([[1]]))],
                offers=[nixlpush.Offer(2, "s", None, *pack_blocks([[2]]))],
            )
            print(panic(1) == _abi.EINTERNAL)
            for event in sorted(node.wait(2, timeout=20)):
                print(event.tag, event.failed, bool(event.message))
        """
    )
    assert done.lines == ["True", "1 True True", "2 True True"]
