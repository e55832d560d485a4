# SPDX-License-Identifier: Apache-2.0
"""The side channel: where peers ask for the metadata of an engine's ranks."""

from __future__ import annotations

import ctypes
import os

from nixlpush import library
from nixlpush.handle import Handle


class SideChannel(Handle):
    """Serves metadata of all ranks of one engine. Open one, in any process of the engine."""

    _close_function = "nixlpush_sidechannel_close"

    @classmethod
    def open(
        cls, host: str, port: int, *, library_path: str | os.PathLike[str] | None = None
    ) -> SideChannel:
        """Binds tcp://host:port; port 0 picks a free one.

        Raises NetworkError if the address cannot be bound, e.g. the port is in use.
        """
        loaded = library.load(library_path)
        value = ctypes.c_uint64()
        loaded.call("nixlpush_sidechannel_open", host.encode(), port, ctypes.byref(value))
        return cls(loaded, value.value)

    @property
    def port(self) -> int:
        """The port it is bound to."""
        return self._call("nixlpush_sidechannel_port")

    def publish(self, metadata: bytes, *, pp_rank: int = 0, tp_rank: int = 0) -> None:
        """Publishes, or replaces, what `Engine.metadata` gave for one rank."""
        self._call("nixlpush_sidechannel_publish", pp_rank, tp_rank, metadata, len(metadata))
