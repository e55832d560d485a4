# SPDX-License-Identifier: Apache-2.0
"""vLLM's own push worker over an agent that writes nothing: it notes what would be copied.

Every number in a note is computed by vLLM: regions, descriptors, which ranks talk, trimming,
descriptor ids. Only the ZMQ handshake and the writer's thread are left out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlAgentMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_scheduler import (
    NixlPushConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import (
    NixlPushConnectorWorker,
)

BlockIds = Sequence[Sequence[int]]


class Write(NamedTuple):
    """One posted WRITE: rows of (source address, destination address, length)."""

    target: str
    copies: np.ndarray
    notification: bytes


class RecordingAgent:
    """What the worker needs of NIXL's agent: keeps lists and transfers as they are given."""

    def __init__(self, name: str, _config: object = None) -> None:
        self.name = name
        self.memory: list[tuple[int, int]] = []  # registered: begin, end
        self._handles = itertools.count(1)
        self._lists: dict[int, tuple[str, np.ndarray]] = {}
        self._prepared: dict[int, Write] = {}
        self._posted: list[Write] = []

    def take(self) -> list[Write]:
        """What was posted since the last call."""
        posted, self._posted = self._posted, []
        return posted

    # ---- Memory and peers ----

    def get_reg_descs(self, ranges: list[tuple], _mem: str) -> list[tuple]:
        return ranges

    def register_memory(self, ranges: list[tuple], backends: object = None) -> None:
        del backends
        self.memory += [(addr, addr + length) for addr, length, *_ in ranges]

    def deregister_memory(self, _ranges: list[tuple]) -> None:
        self.memory.clear()

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        return metadata.decode()

    def remove_remote_agent(self, _name: str) -> None:
        pass

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        return {}

    # ---- Lists and transfers ----

    def get_xfer_descs(self, blocks: Any, _mem: str) -> np.ndarray:
        return np.array(blocks, dtype=np.uint64)

    def prep_xfer_dlist(self, agent: str, descs: np.ndarray) -> int:
        handle = next(self._handles)
        self._lists[handle] = agent, descs
        return handle

    def release_dlist_handle(self, handle: int) -> None:
        del self._lists[handle]

    def make_prepped_xfer(
        self,
        operation: str,
        local: int,
        local_ids: np.ndarray,
        remote: int,
        remote_ids: np.ndarray,
        notif_msg: bytes,
    ) -> int:
        owner, sources = self._lists[local]
        target, destinations = self._lists[remote]
        assert (operation, owner) == ("WRITE", "NIXL_INIT_AGENT")
        assert min(local_ids) >= 0 and min(remote_ids) >= 0  # numpy would take the last ones
        source, destination = sources[local_ids], destinations[remote_ids]
        assert np.array_equal(source[:, 1], destination[:, 1]), "lengths of a pair differ"
        copies = np.stack([source[:, 0], destination[:, 0], source[:, 1]], axis=1)
        handle = next(self._handles)
        self._prepared[handle] = Write(target, copies.astype(np.int64), notif_msg)
        return handle

    def transfer(self, handle: int) -> str:
        self._posted.append(self._prepared[handle])
        return "PROC"

    def release_xfer_handle(self, handle: int) -> None:
        del self._prepared[handle]


class StockRank:
    """One rank's worker of vLLM's push connector, with its cache registered."""

    def __init__(
        self, config: Any, kv_cache: Any, caches: dict[str, Any], tp_rank: int, tp_size: int
    ) -> None:
        self.engine_id = config.kv_transfer_config.engine_id
        self.tp_rank, self.tp_size = tp_rank, tp_size
        with _rank(tp_rank, tp_size):
            self._worker = NixlPushConnectorWorker(config, self.engine_id, kv_cache)
        self._worker.register_kv_caches(caches)
        self.agent: RecordingAgent = self._worker.nixl_wrapper

    def close(self) -> None:
        self._worker.shutdown()

    def metadata(self) -> NixlAgentMetadata:
        """What a peer gets in the handshake, decoded anew as each peer does it."""
        encoded = self._worker.xfer_handshake_metadata.agent_metadata_bytes
        return msgspec.msgpack.decode(encoded, type=NixlAgentMetadata)

    def meet(self, consumers: Sequence[StockRank]) -> None:
        """P's half of the handshake: with those ranks that vLLM would ask."""
        worker, size = self._worker, consumers[0].tp_size
        for rank in worker.transfer_topo.handshake_target_ranks(size):
            consumer = consumers[rank]
            assert consumer._worker.compat_hash == worker.compat_hash
            name = worker.add_remote_agent(consumer.metadata(), rank, size)
            worker._remote_agents[consumer.engine_id][0, rank] = name

    def push(
        self, request: str, ours: BlockIds, consumer: StockRank, theirs: BlockIds
    ) -> list[Write]:
        """What this rank writes when a rank of D has registered `theirs`."""
        registration = {
            "request_id": request,
            "decode_engine_id": consumer.engine_id,
            "decode_host": "",
            "decode_port": 0,
            "decode_tp_size": consumer.tp_size,
            "local_block_ids": theirs,
        }
        self._worker._do_start_push_kv(request, ours, registration)
        return self.agent.take()


def clipper(config: Any, kv_cache: Any) -> Callable[[BlockIds], BlockIds]:
    """What vLLM's scheduler does to a request's blocks before they are sent or registered."""
    engine_id = config.kv_transfer_config.engine_id
    return NixlPushConnectorScheduler(config, engine_id, kv_cache).get_exchange_clipped_blocks


@contextmanager
def _rank(tp_rank: int, tp_size: int) -> Iterator[None]:
    """A worker made in here is that rank, records, and leaves our thread on its cores."""
    with (
        mock.patch.multiple(
            base_worker,
            NixlWrapper=RecordingAgent,
            get_tensor_model_parallel_rank=lambda: tp_rank,
            get_tensor_model_parallel_world_size=lambda: tp_size,
        ),
        mock.patch.object(os, "sched_setaffinity"),
    ):
        yield
