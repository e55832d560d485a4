# SPDX-License-Identifier: Apache-2.0
"""The connector inside vLLM's own scheduler, whose assertions are part of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import need_vllm  # noqa: F401
import pytest
from vllm.v1.outputs import KVConnectorOutput
from vllm_harness import P_LEG, Harness, d_leg, write_model

from nixlpush import SENT, unpack_ids


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(write_model(tmp_path))


@pytest.fixture
def recomputing(tmp_path: Path) -> Harness:
    return Harness(write_model(tmp_path), kv_load_failure_policy="recompute")


# ---- D ----


def test_d_asks_waits_and_decodes(harness: Harness) -> None:
    harness.add("d", d_leg(transfer_id="x-9", pp_size=2), tokens=40)
    assert harness.step() == []
    (expect,) = harness.engine.expects.values()
    assert len(unpack_ids(expect.block_ids)) == 3
    assert expect.block_counts == (3).to_bytes(4, "little")
    assert expect._replace(tag=0, block_ids=b"", block_counts=b"") == expect._make(
        [0, "d", "engine-P", "10.0.0.1", 5600, 1, 2, "x-9", "cmpl-1", b"", b""]
    )
    assert harness.step() == []
    harness.engine.received("d")
    harness.step()
    assert harness.step() == ["d"]
    harness.run()
    assert len(harness.engine.expects) == 1
    harness.assert_idle()


def test_d_asks_only_for_what_its_prefix_cache_lacks(harness: Harness) -> None:
    harness.add("first", None, tokens=64)
    harness.run()
    harness.add("d", d_leg(), tokens=100)
    harness.step()
    (expect,) = harness.engine.expects.values()
    assert len(unpack_ids(expect.block_ids)) == 7 - 4
    harness.engine.received("d")
    harness.run()
    harness.assert_idle()


def test_what_d_still_lacks(harness: Harness) -> None:
    request = harness.add("d", d_leg(), tokens=63)
    matched = harness.connector.get_num_new_matched_tokens
    assert matched(request, 0) == (63, True)
    assert matched(request, 48) == (15, True)
    assert matched(request, 63) == (0, False)
    assert matched(harness.add("plain", None), 0) == (0, False)
    assert matched(harness.add("p", dict(P_LEG)), 0) == (0, False)


def test_no_external_tokens_withdraw_the_announcement(harness: Harness) -> None:
    request = harness.add("d", d_leg(), tokens=40)
    ours = harness.connector.scheduler
    first = ours.build_connector_meta()
    assert [expect.block_counts for expect in first.expects] == [b""]
    ours.update_state_after_alloc(request, None, 0)
    second = ours.build_connector_meta()
    assert second.cancels == (first.expects[0].tag,)
    assert not ours._receives


def test_an_announcement_and_its_blocks_have_one_tag(harness: Harness) -> None:
    """While D has no free block the engine keeps P's lease alive."""
    hog = harness.add("hog", None, tokens=1500)
    hog.max_tokens = 3
    harness.step()
    harness.add("d", d_leg(), tokens=400, seed=500)
    harness.step()
    (announced,) = harness.engine.expects.values()
    assert announced.block_counts == b""
    assert announced.remote_request_id == "cmpl-1"
    for _ in range(6):
        harness.step()
    (asked,) = harness.engine.expects.values()
    assert asked.tag == announced.tag
    assert len(unpack_ids(asked.block_ids)) == 25
    harness.engine.received("d")
    harness.run()
    harness.assert_idle()


def test_a_failed_receive_fails_the_request(harness: Harness) -> None:
    harness.add("d", d_leg())
    harness.step()
    harness.engine.received("d", ok=False)
    harness.step()
    assert str(harness.outputs["d"].finish_reason) == "error"
    harness.run()
    harness.assert_idle()


def test_a_failed_receive_is_computed_here_if_the_policy_says_so(recomputing: Harness) -> None:
    recomputing.add("d", d_leg(), tokens=40)
    recomputing.step()
    recomputing.engine.received("d", ok=False)
    recomputing.step()
    assert recomputing.step() == ["d"]
    recomputing.run()
    assert str(recomputing.outputs["d"].finish_reason) == "length"
    assert len(recomputing.engine.expects) == 1
    recomputing.assert_idle()


@pytest.mark.parametrize(
    "change",
    [
        {"remote_engine_id": None},
        {"remote_host": None},
        {"remote_port": None},
        {"tp_size": None},
        {"remote_request_id": None},
        {"remote_port": "5600"},
        {"remote_port": True},
        {"remote_host": ""},
        {"pp_size": "two"},
        {"transfer_id": 7},
        {"transfer_mode": "pull"},
    ],
)
def test_bad_parameters_fail_that_request_alone(
    harness: Harness, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    harness.add("bad", d_leg(**change))
    harness.add("good", d_leg())
    harness.step()
    assert str(harness.outputs["bad"].finish_reason) == "error"
    assert next(iter(change)) in caplog.text
    assert "request bad" in caplog.text
    harness.engine.received("good")
    harness.run()
    assert str(harness.outputs["good"].finish_reason) == "length"
    harness.assert_idle()


def test_bad_parameters_are_computed_here_if_the_policy_says_so(recomputing: Harness) -> None:
    recomputing.add("bad", d_leg(remote_port=None))
    recomputing.run()
    assert str(recomputing.outputs["bad"].finish_reason) == "length"
    assert not recomputing.engine.expects
    recomputing.assert_idle()


def test_an_abort_before_the_first_step_tells_nobody(harness: Harness) -> None:
    harness.add("d", d_leg())
    harness.abort("d")
    harness.run()
    assert not harness.engine.expects
    assert not harness.engine.cancels
    harness.assert_idle()


def test_an_abort_while_waiting_keeps_the_blocks_until_the_engine_is_done(
    harness: Harness,
) -> None:
    harness.add("d", d_leg())
    harness.step()
    harness.abort("d")
    harness.step()
    assert harness.engine.cancels == [harness.engine.tag_of("d")]
    assert harness.free_blocks() < harness.free_at_start
    harness.engine.received("d", ok=False)
    harness.run()
    harness.assert_idle()


def test_an_abort_of_a_request_whose_kv_has_just_come(harness: Harness) -> None:
    harness.add("d", d_leg())
    harness.step()
    harness.engine.received("d")
    harness.step()
    harness.abort("d")
    harness.run()
    harness.assert_idle()


def test_an_abort_in_the_step_that_allocates_ends_with_one_report(harness: Harness) -> None:
    """Blocks and cancel reach the engine together."""
    harness.add("d", d_leg())
    output = harness.scheduler.schedule()
    metadata = output.kv_connector_metadata
    harness.abort("d")
    cancel = harness.connector.scheduler.build_connector_meta()
    assert [expect.request_id for expect in metadata.expects] == ["d"]
    assert cancel.cancels == (metadata.expects[0].tag,)


def test_an_abort_of_a_rejected_request_reports_it_once(harness: Harness) -> None:
    harness.add("bad", d_leg(remote_port=None))
    output = harness.scheduler.schedule()
    harness.abort("bad")
    harness.worker.start_step(output.kv_connector_metadata)
    results = harness.worker.take_results()
    assert results.received == results.failed == {"bad"}
    assert not harness.worker.take_results().received
    harness.scheduler._update_from_kv_xfer_finished(
        KVConnectorOutput(finished_recving=results.received)
    )
    harness.run()
    harness.assert_idle()


def test_an_entry_the_engine_refuses_fails_alone(harness: Harness) -> None:
    harness.engine.refuse = {"bad"}
    harness.add("bad", d_leg())
    harness.add("good", d_leg())
    harness.step()
    assert str(harness.outputs["bad"].finish_reason) == "error"
    harness.engine.received("good")
    harness.run()
    harness.assert_idle()


# ---- P ----


def test_p_offers_its_blocks_and_frees_them_when_they_are_sent(harness: Harness) -> None:
    harness.add("p", {**P_LEG, "transfer_id": "x-9"}, tokens=40)
    harness.step()
    params = harness.outputs["p"].kv_transfer_params
    assert params["remote_request_id"] == "p"
    harness.step()
    (offer,) = harness.engine.offers.values()
    assert (offer.request_id, offer.transfer_id, offer.lease_ms) == ("p", "x-9", 0)
    assert [unpack_ids(offer.block_ids)] == list(params["remote_block_ids"])
    assert len(unpack_ids(offer.block_ids)) == 3
    assert offer.tokens == 40
    assert harness.connector.has_pending_push_work()
    assert harness.free_blocks() < harness.free_at_start
    harness.engine.sent("p")
    harness.run()
    harness.assert_idle()


def test_p_tells_the_router_all_that_vllms_connector_tells(harness: Harness) -> None:
    harness.add("p", dict(P_LEG), tokens=40)
    harness.step()
    params = harness.outputs["p"].kv_transfer_params
    params.pop("remote_prefill_cached_tokens", None)
    assert params.pop("remote_block_ids")
    assert params == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "engine-X",
        "remote_request_id": "p",
        "remote_host": "localhost",
        "remote_port": 5600,
        "tp_size": 1,
        "dcp_size": 1,
        "pp_size": 1,
        "remote_num_tokens": 40,
        "transfer_mode": "push",
    }
    harness.step()
    harness.engine.sent("p")
    harness.run()


def test_what_p_tells_is_what_d_takes(harness: Harness) -> None:
    """A sequential router hands P's parameters on as they are."""
    harness.add("p", {**P_LEG, "transfer_id": "x-9"})
    harness.step()
    harness.add("d", dict(harness.outputs["p"].kv_transfer_params), seed=500)
    harness.step()
    expect = harness.engine.expects[harness.engine.tag_of("d")]
    assert (expect.remote_request_id, expect.transfer_id) == ("p", "x-9")
    assert expect.block_counts
    harness.engine.sent("p")
    harness.engine.received("d")
    harness.run()
    harness.assert_idle()


def test_p_frees_its_blocks_when_sending_fails(harness: Harness) -> None:
    harness.add("p", dict(P_LEG))
    harness.step()
    harness.step()
    harness.engine.sent("p", ok=False)
    harness.run()
    harness.assert_idle()


def test_p_offers_nothing_when_it_is_aborted(harness: Harness) -> None:
    harness.add("p", dict(P_LEG))
    harness.scheduler.schedule()
    harness.abort("p")
    assert not harness.connector.scheduler._offers
    assert harness.connector.has_pending_push_work()
    harness.step()
    (declined,) = harness.engine.declines
    assert declined == ("p", None, "it ended with abort")
    harness.assert_idle()


def test_p_reports_each_request_once(harness: Harness) -> None:
    harness.add("p", dict(P_LEG))
    harness.step()
    harness.step()
    harness.engine.sent("p")
    harness.engine.end(harness.engine.tag_of("p"), SENT)
    harness.engine.end(12345, SENT)
    harness.run()
    harness.assert_idle()


def test_a_bad_transfer_id_on_p_is_ignored_with_a_word(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.add("p", {**P_LEG, "transfer_id": ["x"]})
    harness.step()
    harness.step()
    (offer,) = harness.engine.offers.values()
    assert offer.transfer_id is None
    assert "transfer_id is ['x']" in caplog.text
    harness.engine.sent("p")
    harness.run()


def test_p_leaves_the_last_tokens_to_d_if_a_drafter_needs_that(harness: Harness) -> None:
    harness.connector.scheduler._backoff = 2
    request = harness.add("p", dict(P_LEG), tokens=40)
    assert (request.num_prompt_tokens, len(request.prompt_token_ids)) == (38, 38)
    assert request.num_tokens == 38
    harness.connector.on_new_request(request)
    assert request.num_prompt_tokens == 38
    request = harness.add("d", d_leg(), tokens=40, seed=500)
    assert harness.connector.get_num_new_matched_tokens(request, 16) == (22, True)
    short = harness.add("short", d_leg(), tokens=2, seed=700)
    assert harness.connector.get_num_new_matched_tokens(short, 0) == (2, True)


# ---- Others ----


def test_requests_without_parameters_never_touch_the_engine(harness: Harness) -> None:
    harness.add("plain", None)
    harness.run()
    assert harness.engine.submits == 0
    harness.assert_idle()


def test_many_requests_at_once_leave_nothing(harness: Harness) -> None:
    for i in range(40):
        harness.add(f"p{i}", dict(P_LEG), tokens=20 + i, seed=i)
        harness.add(f"d{i}", d_leg(), tokens=20 + i, seed=500 + i)
    for step in range(300):
        if not harness.scheduler.has_requests():
            break
        harness.step()
        for entry in [*harness.worker._pending.values()]:
            harness.engine.end(entry.tag, SENT if entry.request_id[0] == "p" else 3 + step % 2)
        if step % 7 == 0:
            harness.abort(f"d{step % 40}")
    harness.assert_idle()
