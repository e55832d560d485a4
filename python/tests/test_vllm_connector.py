# SPDX-License-Identifier: Apache-2.0
"""The class as vLLM finds and uses it, and the statistics it reports."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import need_vllm  # noqa: F401
import pytest
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm_harness import P_LEG, Harness, cache_config, d_leg, vllm_config, write_model

from nixlpush import NetworkError, SideChannel, pack_blocks
from nixlpush.types import Expect, Offer
from nixlpush.vllm import NixlPushConnector, compat
from nixlpush.vllm.metadata import HandshakeMetadata, StepMetadata
from nixlpush.vllm.stats import Recorder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


@pytest.fixture
def harness(model: Path) -> Harness:
    return Harness(model)


def test_vllm_finds_the_class(model: Path) -> None:
    config = vllm_config(model)
    stock = KVConnectorFactory.get_connector_class_by_name("NixlPushConnector")
    found = KVConnectorFactory.get_connector_class(config.kv_transfer_config)
    assert found is NixlPushConnector
    assert KVConnectorFactory.supports_hma_config(config.kv_transfer_config)
    layout = stock.get_required_kvcache_layout(config)
    assert layout in ("HND", "LBHNC")
    assert found.get_required_kvcache_layout(config) == layout
    assert found._cache_hit_source is getattr(stock, "_cache_hit_source", None)
    assert not found.requires_piecewise_for_cudagraph({})


def test_importing_the_class_loads_neither_library_nor_nixl(run_script: Callable) -> None:
    done = run_script(
        """
        import sys
        from nixlpush.vllm import NixlPushConnector
        maps = open("/proc/self/maps").read()
        print("libnixlpush" in maps, "libnixl" in maps, "nixlpush.vllm.worker" in sys.modules)
        """,
        timeout=300,
    )
    assert done.lines[-1] == "False False False"


def test_each_role_has_its_part(model: Path) -> None:
    config = vllm_config(model)
    scheduler = NixlPushConnector(config, KVConnectorRole.SCHEDULER, cache_config())
    worker = NixlPushConnector(config, KVConnectorRole.WORKER, cache_config())
    assert scheduler.get_kv_connector_stats() is None
    assert worker.get_kv_connector_stats() is None
    assert worker.get_handshake_metadata() is None
    assert not worker.has_pending_push_work()
    assert worker.get_block_ids_with_load_errors() == set()
    scheduler.shutdown()
    worker.shutdown()


def test_the_side_channel_serves_after_start_and_frees_its_port(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SideChannel.open("127.0.0.1", 0) as probe:
        port = probe.port
    monkeypatch.setenv("VLLM_NIXL_SIDE_CHANNEL_HOST", "127.0.0.1")
    monkeypatch.setenv("VLLM_NIXL_SIDE_CHANNEL_PORT", str(port))
    config = vllm_config(model)
    metadata = {(0, 0): pickle.loads(pickle.dumps(HandshakeMetadata(b"payload")))}
    first = NixlPushConnector(config, KVConnectorRole.SCHEDULER, cache_config())
    second = NixlPushConnector(config, KVConnectorRole.SCHEDULER, cache_config())
    first.set_xfer_handshake_metadata_pp_aware(metadata)
    first.set_xfer_handshake_metadata_pp_aware(metadata)
    with pytest.raises(NetworkError, match=str(port)):
        second.set_xfer_handshake_metadata_pp_aware(metadata)
    first.shutdown()
    second.set_xfer_handshake_metadata_pp_aware(metadata)
    second.shutdown()


def test_the_handshake_of_another_connector_is_refused(model: Path) -> None:
    connector = NixlPushConnector(
        vllm_config(model), KVConnectorRole.SCHEDULER, cache_config()
    )
    with pytest.raises(TypeError, match="all workers must run"):
        connector.scheduler._channel = SideChannel.open("127.0.0.1", 0)
        connector.set_xfer_handshake_metadata_pp_aware({(0, 0): object()})
    connector.shutdown()


def test_step_metadata_survives_a_pickle() -> None:
    step = StepMetadata(
        (Expect(1, "r", "e", "h", 5, 1, 2, "x", "y", *pack_blocks([[1, 2], []])),),
        (Offer(2, "s", None, *pack_blocks([[7]])),),
        (3, 4),
        ("t",),
    )
    copy = pickle.loads(pickle.dumps(step, 5))
    assert vars(copy) == vars(step)
    assert isinstance(copy.expects[0], Expect)
    assert step
    assert not pickle.loads(pickle.dumps(StepMetadata(), 5))


def test_the_hash_is_that_of_vllms_push_connector_and_its_factors_are_known(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The factors that we name must be those that vLLM hashes."""
    import vllm.config.utils

    hashed = {}
    original = vllm.config.utils.hash_factors

    def spy(factors: dict) -> str:
        hashed.update(factors)
        return original(factors)

    monkeypatch.setattr(vllm.config.utils, "hash_factors", spy)
    config = vllm_config(model)
    assert len(compat.compat_hash(config, "CPU_ATTN")) == 64
    named = compat.compat_factors(config, "CPU_ATTN")
    if "speculative_config" not in hashed:  # before 0.28; naming it does no harm
        del named["speculative_config"]
    assert named == {name: str(value) for name, value in hashed.items()}


def test_transfers_are_counted_where_they_are_sent(harness: Harness) -> None:
    harness.worker._stats = Recorder(harness.engine)
    harness.add("p", dict(P_LEG))
    harness.add("d", d_leg(), seed=500)
    harness.step()
    harness.step()
    assert harness.worker.take_stats() is None
    harness.engine.sent("p")
    harness.engine.received("d")
    harness.step()
    data = harness.worker.take_stats().data
    assert data["transfer_duration"] == [0.005]
    assert data["post_duration"] == [0.002]
    assert data["bytes_transferred"] == [4096]
    assert data["num_descriptors"] == [3]
    assert harness.worker.take_stats() is None


def test_failures_are_counted_from_the_engines_counters(harness: Harness) -> None:
    recorder = Recorder(harness.engine)
    harness.engine.counters = {
        "failed_transfers": 1,
        "failed_notifications": 2,
        "failed_handshakes": 3,
        "expired_offers": 4,
        "notifications_after_end": 5,
    }
    data = recorder.take().data
    expected = {
        "num_failed_transfers": 1,
        "num_failed_notifications": 2,
        "num_failed_handshakes": 3,
        "num_kv_expired_reqs": 4,
        "num_notifications_after_expiry": 5,
    }
    # Older releases of vLLM count fewer kinds.
    known = {name: count for name, count in expected.items() if name in data}
    assert len(known) >= 3
    assert {name: len(values) for name, values in data.items() if values} == known
    recorder._next_look = 0
    assert recorder.take() is None


def test_older_releases_learn_of_a_failure_from_its_blocks(harness: Harness) -> None:
    config = vllm_config(Path(harness.scheduler.vllm_config.model_config.model))
    connector = NixlPushConnector(config, KVConnectorRole.WORKER, cache_config())
    connector._worker = harness.worker
    harness.add("d", d_leg())
    harness.worker.start_step(harness.scheduler.schedule().kv_connector_metadata)
    (expect,) = harness.engine.expects.values()
    harness.engine.received("d", ok=False)
    assert connector.get_finished(set()) == (None, {"d"})
    assert pack_blocks([sorted(connector.get_block_ids_with_load_errors())])[0] == (
        expect.block_ids
    )
    assert connector.get_block_ids_with_load_errors() == set()


def test_older_releases_learn_of_a_rejected_request_from_its_blocks(harness: Harness) -> None:
    connector = harness.workers_connector
    request = harness.add("bad", d_leg(remote_port=None))
    step = pickle.loads(pickle.dumps(harness.scheduler.schedule().kv_connector_metadata))
    (blocks,) = harness.scheduler.kv_cache_manager.get_block_ids(request.request_id)
    harness.worker.start_step(step)
    assert connector.get_finished(set()) == (None, {"bad"})
    assert connector.get_block_ids_with_load_errors() == set(blocks)


def test_why_requests_failed_is_counted(harness: Harness, model: Path) -> None:
    config = vllm_config(model)
    harness.worker._stats = Recorder(harness.engine)
    harness.add("d", d_leg())
    harness.step()
    harness.engine.received("d", ok=False)
    harness.step()
    stats = harness.worker.take_stats()
    assert stats.data["failed_requests"] == ["deadline"]
    both = NixlPushConnector.build_kv_connector_stats().aggregate(stats).aggregate(stats)
    labels = [str(model), "0"]
    metrics = NixlPushConnector.build_prom_metrics(
        config,
        {kind: kind for kind in (Gauge, Counter, Histogram)},
        ["model_name", "engine"],
        {0: labels},
    )
    metrics.observe(both.data, 0)
    counted = REGISTRY.get_sample_value(
        "vllm:nixlpush_failed_requests_total",
        {"model_name": labels[0], "engine": "0", "reason": "deadline"},
    )
    assert counted == 2
