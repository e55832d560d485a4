# SPDX-License-Identifier: Apache-2.0
"""`kv_transfer_params`: what the router says about the other leg of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# What a decode request must carry. Booleans are no numbers here.
_REQUIRED: dict[str, type] = {
    "remote_engine_id": str,
    "remote_host": str,
    "remote_port": int,
    "tp_size": int,
    "remote_request_id": str,
}


class Producer(NamedTuple):
    """P's coordinates, as a decode request names them."""

    engine_id: str
    host: str
    port: int
    tp_size: int
    pp_size: int
    request_id: str
    transfer_id: str | None


def producer(params: Mapping[str, Any]) -> Producer:
    """Reads the parameters of a decode request. Raises ValueError, which says what is wrong
    and what is needed."""
    problems = [
        f"{name} is missing" if params.get(name) is None else f"{name} is {params[name]!r}"
        for name, kind in _REQUIRED.items()
        if not _fits(params.get(name), kind)
    ]
    pp_size = params.get("pp_size") or 1
    if not _fits(pp_size, int):
        problems.append(f"pp_size is {pp_size!r}")
    if params.get("transfer_mode", "push") != "push":
        problems.append(f"transfer_mode is {params['transfer_mode']!r}, not 'push'")
    try:
        transfer = transfer_id(params)
    except ValueError as error:
        problems.append(str(error))
    if problems:
        needs = ", ".join(f"{name} ({kind.__name__})" for name, kind in _REQUIRED.items())
        raise ValueError(f"{'; '.join(problems)}. A decode request needs {needs}")
    return Producer(
        engine_id=params["remote_engine_id"],
        host=params["remote_host"],
        port=params["remote_port"],
        tp_size=params["tp_size"],
        pp_size=pp_size,
        request_id=params["remote_request_id"],
        transfer_id=transfer,
    )


def transfer_id(params: Mapping[str, Any]) -> str | None:
    """The router's name for this pair of legs, if it gave one. Raises ValueError."""
    value = params.get("transfer_id")
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"transfer_id is {value!r}")
    return value


def _fits(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str) and bool(value)
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536
