# SPDX-License-Identifier: Apache-2.0
"""What users write into `--kv-transfer-config`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import need_vllm  # noqa: F401
import pytest
from vllm_harness import Harness, vllm_config, write_model

from nixlpush import Backend
from nixlpush.vllm import settings


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path)


def read(model: Path, **extra: Any) -> settings.Settings:
    return settings.read(vllm_config(model, kv_connector_extra_config=extra))


def test_defaults_are_vllms(model: Path) -> None:
    found = read(model)
    assert found == settings.Settings(
        engine_id="engine-X",
        side_channel_host="localhost",
        side_channel_port=5600,
        backends=(Backend("UCX"),),
        lease=30,
        receive_timeout=480,
        peer_ttl=3600,
        enforce_compat=True,
    )


def test_every_key_is_read(model: Path) -> None:
    found = read(
        model,
        backends=["UCX", "LIBFABRIC"],
        num_threads=3,
        kv_lease_duration=12.5,
        decoder_kv_blocks_ttl=100,
        push_registration_timeout=7,
        engine_ttl=-1,
        enforce_handshake_compat=False,
        bidirectional_kv_xfer=False,
        kv_recompute_threshold=64,
    )
    assert found.backends == (Backend("UCX", {"num_threads": "3"}), Backend("LIBFABRIC"))
    assert (found.lease, found.receive_timeout, found.peer_ttl) == (12.5, 7, -1)
    assert not found.enforce_compat


def test_the_receive_timeout_falls_back_to_the_ttl_of_blocks(model: Path) -> None:
    assert read(model, decoder_kv_blocks_ttl=100).receive_timeout == 100


def test_the_address_comes_from_vllms_environment(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_NIXL_SIDE_CHANNEL_HOST", "10.1.2.3")
    monkeypatch.setenv("VLLM_NIXL_SIDE_CHANNEL_PORT", "7000")
    config = vllm_config(model)
    config.parallel_config.data_parallel_index = 4
    found = settings.read(config)
    assert (found.side_channel_host, found.side_channel_port) == ("10.1.2.3", 7004)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("backends", "UCX"),
        ("backends", []),
        ("backends", [1]),
        ("num_threads", -1),
        ("num_threads", "4"),
        ("num_threads", True),
        ("kv_lease_duration", 0),
        ("kv_lease_duration", "30"),
        ("push_registration_timeout", None),
        ("engine_ttl", "never"),
        ("enforce_handshake_compat", 1),
        ("bidirectional_kv_xfer", True),
        ("no_such_key", 1),
    ],
)
def test_a_wrong_key_or_value_is_named_with_the_valid_ones(
    model: Path, key: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=key) as caught:
        Harness(model, kv_connector_extra_config={"num_threads": 1, key: value})
    for valid in ("backends", "kv_lease_duration", "enforce_handshake_compat"):
        assert valid in str(caught.value)


def test_all_wrong_keys_are_named_at_once(model: Path) -> None:
    with pytest.raises(ValueError, match="unknown key 'one', unknown key 'two'"):
        read(model, one=1, two=2)
