# SPDX-License-Identifier: Apache-2.0
"""Settings: `kv_connector_extra_config`, as vLLM's own push connector reads it, and the
address of the side channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nixlpush.types import Backend

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True)
class Settings:
    """One engine's settings, checked. Times are seconds."""

    engine_id: str
    side_channel_host: str
    side_channel_port: int
    backends: tuple[Backend, ...]
    lease: float
    receive_timeout: float
    peer_ttl: float
    enforce_compat: bool


class _Key:
    """One key: what it must be, and a test for it."""

    def __init__(self, meaning: str, valid: Callable[[Any], bool]) -> None:
        self.meaning = meaning
        self.valid = valid


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(name, str) and name for name in value)
    )


_KEYS: dict[str, _Key] = {
    "backends": _Key("a list of names of NIXL backends", _names),
    "num_threads": _Key("a whole number >= 0", lambda v: _whole(v) and v >= 0),
    "kv_lease_duration": _Key("seconds > 0", lambda v: _number(v) and v > 0),
    "decoder_kv_blocks_ttl": _Key("seconds > 0", lambda v: _number(v) and v > 0),
    "push_registration_timeout": _Key("seconds > 0", lambda v: _number(v) and v > 0),
    "engine_ttl": _Key("seconds; 0 or less: never", _number),
    "enforce_handshake_compat": _Key("true or false", lambda v: isinstance(v, bool)),
    "bidirectional_kv_xfer": _Key("false, pushing goes one way", lambda v: v is False),
    "kv_recompute_threshold": _Key("a whole number; used by pull only", _whole),
}


def read(vllm_config: VllmConfig) -> Settings:
    """The settings of this process's engine. Raises ValueError, which names the valid keys."""
    from vllm import envs

    transfer = vllm_config.kv_transfer_config
    if transfer is None or not transfer.engine_id:
        raise ValueError("NixlPushConnector needs --kv-transfer-config with an engine_id")
    extra = transfer.kv_connector_extra_config
    check(extra)
    return Settings(
        engine_id=transfer.engine_id,
        side_channel_host=envs.VLLM_NIXL_SIDE_CHANNEL_HOST,
        side_channel_port=envs.VLLM_NIXL_SIDE_CHANNEL_PORT
        + vllm_config.parallel_config.data_parallel_index,
        backends=_backends(extra),
        lease=extra.get("kv_lease_duration", 30),
        receive_timeout=extra.get(
            "push_registration_timeout", extra.get("decoder_kv_blocks_ttl", 480)
        ),
        peer_ttl=extra.get("engine_ttl", 3600),
        enforce_compat=extra.get("enforce_handshake_compat", True),
    )


def check(extra: Mapping[str, Any]) -> None:
    """Raises ValueError unless every key is known and every value fits."""
    problems = [
        f"unknown key {key!r}" if key not in _KEYS else f"{key} is {value!r}"
        for key, value in extra.items()
        if key not in _KEYS or not _KEYS[key].valid(value)
    ]
    if problems:
        valid = "; ".join(f"{name}: {key.meaning}" for name, key in _KEYS.items())
        raise ValueError(
            f"kv_connector_extra_config of NixlPushConnector: {', '.join(problems)}. "
            f"Valid keys are: {valid}"
        )


def _backends(extra: Mapping[str, Any]) -> tuple[Backend, ...]:
    """num_threads goes to UCX, the backend that has such threads. Without the key UCX gets
    none: nixlpush has writer threads of its own."""
    ucx = {"num_threads": str(extra["num_threads"])} if extra.get("num_threads") else {}
    return tuple(
        Backend(name, ucx if name == "UCX" else {}) for name in extra.get("backends", ["UCX"])
    )
