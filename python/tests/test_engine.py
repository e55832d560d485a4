# SPDX-License-Identifier: Apache-2.0
"""Engines over real NIXL: a push within this process, and what happens to bad input."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest
from cache import BLOCK_LEN, NUM_LAYERS, Cache, Node

from nixlpush import (
    RECEIVE_FAILED,
    RECEIVED,
    SENT,
    Backend,
    ClosedError,
    Decline,
    Engine,
    Expect,
    InvalidArgumentError,
    Layout,
    NetworkError,
    NixlError,
    Offer,
    Options,
    SideChannel,
    StateError,
    library,
    pack_blocks,
)
from nixlpush._abi import (
    REASON_CANCELLED,
    REASON_DEADLINE,
    REASON_INCOMPATIBLE,
    REASON_PEER,
    REASON_UNREACHABLE,
)


@pytest.fixture
def producer() -> Iterator[Node]:
    with Node("p", compat_hash="same") as node:
        yield node


@pytest.fixture
def consumer() -> Iterator[Node]:
    with Node("d", compat_hash="same", receive_timeout_ms=2000) as node:
        yield node


def expect(tag: int, request: str, node: Node, blocks: list[int]) -> Expect:
    ids, counts = pack_blocks([blocks])
    return Expect(
        tag,
        request,
        node.engine_id,
        "127.0.0.1",
        node.channel.port,
        block_ids=ids,
        block_counts=counts,
    )


def offer(tag: int, request: str, blocks: list[int]) -> Offer:
    return Offer(tag, request, None, *pack_blocks([blocks]))


def push(producer: Node, consumer: Node, number: int) -> None:
    """Pushes two blocks and checks every byte."""
    source, target = [5, 9], [33, 2]
    for block in source:
        producer.cache.fill(block, 10 * block + number)
    producer.engine.submit(offers=[offer(number, f"r{number}-0000000a", source)])
    consumer.engine.submit(expects=[expect(number, f"r{number}-0000000b", producer, target)])
    (sent,) = producer.wait()
    (received,) = consumer.wait()
    assert (sent.tag, sent.kind, sent.message) == (number, SENT, "")
    assert (received.tag, received.kind) == (number, RECEIVED)
    assert sent.bytes == len(source) * NUM_LAYERS * BLOCK_LEN
    assert sent.block_pairs == len(source) * NUM_LAYERS
    for layer in range(NUM_LAYERS):
        for s, t in zip(source, target):
            assert consumer.cache.block(layer, t) == producer.cache.block(layer, s)


def test_a_push_moves_the_bytes(producer: Node, consumer: Node) -> None:
    for number in range(1, 6):
        push(producer, consumer, number)
    assert producer.engine.stats()["sent"] == 5
    assert consumer.engine.stats()["received"] == 5


def test_the_event_descriptor_is_readable_only_while_events_wait(
    producer: Node, consumer: Node
) -> None:
    fd = consumer.engine.event_fd()
    assert select.select([fd], [], [], 0) == ([], [], [])
    producer.engine.submit(offers=[offer(1, "r-0000000a", [1])])
    consumer.engine.submit(expects=[expect(1, "r-0000000b", producer, [1])])
    assert select.select([fd], [], [], 30) == ([fd], [], [])
    assert [event.kind for event in consumer.engine.poll()] == [RECEIVED]
    assert select.select([fd], [], [], 0) == ([], [], [])


def test_a_transfer_id_pairs_requests_of_any_name(producer: Node, consumer: Node) -> None:
    producer.cache.fill(1, 77)
    producer.engine.submit(offers=[offer(1, "left", [1])._replace(transfer_id="x-1")])
    consumer.engine.submit(
        expects=[expect(1, "right", producer, [2])._replace(transfer_id="x-1")]
    )
    assert [event.kind for event in consumer.wait()] == [RECEIVED]
    assert consumer.cache.block(0, 2) == producer.cache.block(0, 1)


def test_a_producer_that_never_offers(producer: Node, consumer: Node) -> None:
    consumer.engine.submit(expects=[expect(1, "r-0000000b", producer, [1])])
    (event,) = consumer.wait(timeout=20)
    assert (event.kind, event.reason) == (RECEIVE_FAILED, REASON_DEADLINE)
    assert event.message
    assert str(event).startswith("deadline: ")


@pytest.mark.parametrize("first", ["decline", "registration"])
def test_a_declined_request_fails_at_once(
    producer: Node, consumer: Node, first: str
) -> None:
    declined = Decline("r-0000000a", why="its prefill was aborted")
    if first == "decline":
        producer.engine.submit(declines=[declined])
    consumer.engine.submit(expects=[expect(1, "r-0000000b", producer, [1])])
    if first == "registration":
        producer.settle(registrations=1)
        producer.engine.submit(declines=[declined])
    (event,) = consumer.wait(timeout=1)
    assert (event.kind, event.reason) == (RECEIVE_FAILED, REASON_PEER)
    assert "its prefill was aborted" in event.message
    push(producer, consumer, 2)


def test_a_dump_tells_what_is_held(producer: Node, consumer: Node) -> None:
    consumer.engine.submit(expects=[expect(7, "r-0000000b", producer, [1])])
    producer.settle(registrations=1)
    (held,) = consumer.engine.dump()["expects"]
    assert (held["tag"], held["request"], held["state"]) == (7, "r-0000000b", "registered")
    assert [demand["request"] for demand in producer.engine.dump()["demands"]] == ["r-0000000b"]


def test_a_cancelled_request_ends_at_once(producer: Node, consumer: Node) -> None:
    consumer.engine.submit(expects=[expect(1, "r-0000000b", producer, [1])])
    producer.settle(registrations=1)
    consumer.engine.submit(cancels=[1])
    (event,) = consumer.wait(timeout=1)
    assert (event.kind, event.reason) == (RECEIVE_FAILED, REASON_CANCELLED)
    producer.settle(registrations=0)
    push(producer, consumer, 2)


def test_a_producer_that_is_not_there(consumer: Node) -> None:
    with SideChannel.open("127.0.0.1", 0) as channel:
        port = channel.port
    lost = Expect(1, "r", "gone", "127.0.0.1", port, 1, 1, None, None, *pack_blocks([[1]]))
    consumer.engine.submit(expects=[lost])
    (event,) = consumer.wait(timeout=20)
    assert event.kind == RECEIVE_FAILED
    assert event.reason in (REASON_UNREACHABLE, REASON_DEADLINE)


def test_another_hash_names_both_and_the_factor_that_differs(consumer: Node) -> None:
    with Node("other", compat_hash="different") as other:
        consumer.engine.submit(expects=[expect(1, "r", other, [1])])
        (event,) = consumer.wait(timeout=20)
    assert (event.kind, event.reason) == (RECEIVE_FAILED, REASON_INCOMPATIBLE)
    assert "same" in event.message
    assert "different" in event.message


def test_cancelling_an_announcement_gives_no_event(producer: Node, consumer: Node) -> None:
    announced = expect(1, "r", producer, [])._replace(block_ids=b"", block_counts=b"")
    consumer.engine.submit(expects=[announced])
    consumer.settle(expects=1)
    consumer.engine.submit(cancels=[1, 999])
    push(producer, consumer, 2)
    consumer.settle(expects=0)


def test_expect_and_cancel_in_one_step_end_with_one_event(
    producer: Node, consumer: Node
) -> None:
    consumer.engine.submit(expects=[expect(1, "r", producer, [1])], cancels=[1])
    (event,) = consumer.wait(timeout=20)
    assert (event.tag, event.kind) == (1, RECEIVE_FAILED)
    consumer.settle(expects=0, events=0)


def test_a_step_with_a_wrong_block_id_is_refused_as_a_whole(
    producer: Node, consumer: Node
) -> None:
    bad = expect(2, "bad-one", producer, [1_000_000])
    with pytest.raises(InvalidArgumentError, match="bad-one"):
        consumer.engine.submit(expects=[expect(1, "good-one", producer, [1]), bad])
    consumer.settle(expects=0, events=0)
    push(producer, consumer, 3)


def test_more_entries_than_the_first_arrays_hold(producer: Node, consumer: Node) -> None:
    count = 40
    offers = [offer(i, f"r{i}-0000000a", [i % 60]) for i in range(1, count + 1)]
    expects = [expect(i, f"r{i}-0000000b", producer, [i % 60]) for i in range(1, count + 1)]
    producer.engine.submit(offers=offers)
    consumer.engine.submit(expects=expects)
    assert {event.tag for event in consumer.wait(count)} == set(range(1, count + 1))
    assert {event.tag for event in producer.wait(count)} == set(range(1, count + 1))


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(NixlError, match="NOSUCH"):
        Engine.open(Options("e", "127.0.0.1", 1, backends=[Backend("NOSUCH")]))


def test_a_missing_nixl_is_told_with_every_place() -> None:
    with pytest.raises(NixlError, match="/nowhere/libnixl_capi.so"):
        Engine.open(Options("e", "127.0.0.1", 1, nixl_library="/nowhere/libnixl_capi.so"))


def test_an_engine_needs_an_id() -> None:
    with pytest.raises(InvalidArgumentError, match="engine id"):
        Engine.open(Options("", "127.0.0.1", 1))


def test_a_step_before_the_cache_is_registered() -> None:
    with Engine.open(Options("e", "127.0.0.1", 1)) as engine:
        with pytest.raises(StateError):
            engine.submit(offers=[offer(1, "r", [1])])
        with pytest.raises(StateError):
            engine.metadata()


def test_a_cache_outside_its_memory_is_refused() -> None:
    layout = Cache().layout()
    with Engine.open(Options("e", "127.0.0.1", 1)) as engine:
        with pytest.raises(InvalidArgumentError):
            engine.register(
                Layout(
                    layout.name,
                    layout.attention_backend,
                    layout.block_size,
                    layout.num_blocks,
                    layout.regions,
                    layout.memory[:1],
                )
            )


def test_a_closed_engine_says_so() -> None:
    engine = Engine.open(Options("e", "127.0.0.1", 1))
    before = library.load().open_handles()
    engine.close()
    engine.close()
    assert engine.closed
    assert library.load().open_handles() == before - 1
    with pytest.raises(ClosedError, match="Engine is closed"):
        engine.poll()


def test_a_port_in_use_is_an_error_at_once() -> None:
    with SideChannel.open("127.0.0.1", 0) as first:
        with pytest.raises(NetworkError, match=str(first.port)):
            SideChannel.open("127.0.0.1", first.port)


def test_the_version_is_the_wheels() -> None:
    import nixlpush

    assert library.load().version() == nixlpush.__version__
    assert os.getpid() == library.load().pid
