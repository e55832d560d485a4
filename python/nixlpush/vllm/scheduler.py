# SPDX-License-Identifier: Apache-2.0
"""The scheduler's part: request parameters and block ids in, changes for the workers out.

No state machine here: deadlines, leases and heartbeats live in the engines of the workers.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.v1.request import RequestStatus

from nixlpush.sidechannel import SideChannel
from nixlpush.types import Decline, Expect, Offer, pack_blocks
from nixlpush.vllm import params as transfer_params
from nixlpush.vllm import releases
from nixlpush.vllm.blocklists import BlockLists
from nixlpush.vllm.metadata import HandshakeMetadata, StepMetadata
from nixlpush.vllm.params import Producer
from nixlpush.vllm.settings import Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger(__name__)

_FINISHED = (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)


@dataclass
class _Receive:
    """A request on D whose KV is to come: announced, later with blocks."""

    tag: int
    producer: Producer
    has_blocks: bool = False


class PushScheduler:
    """Runs on the scheduler's thread. None of its hooks raises: a bad request fails alone."""

    def __init__(
        self, settings: Settings, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig
    ) -> None:
        self._settings = settings
        self._block_lists = BlockLists(kv_cache_config)
        parallel = vllm_config.parallel_config
        self._as_producer = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": settings.engine_id,
            "remote_host": settings.side_channel_host,
            "remote_port": settings.side_channel_port,
            "tp_size": parallel.tensor_parallel_size,
            "dcp_size": parallel.decode_context_parallel_size,
            "pp_size": parallel.pipeline_parallel_size,
            "transfer_mode": "push",
        }
        # The last tokens of a prompt that P leaves to D: a drafter with several modules must
        # not see them on P, and D cannot run the last one on a state that has seen it.
        self._backoff = max(
            int(self._block_lists.has_states), releases.prefill_lookahead(vllm_config) - 1
        )
        self._tags = itertools.count(1)
        self._receives: dict[str, _Receive] = {}
        self._sends: set[str] = set()
        self._channel: SideChannel | None = None
        self._reset()

    def _reset(self) -> None:
        self._expects: dict[int, Expect] = {}
        self._offers: list[Offer] = []
        self._cancels: list[int] = []
        self._rejected: list[tuple[str, bytes]] = []
        self._declines: list[Decline] = []

    # ---- Side channel ----

    def publish(self, metadata: dict[tuple[int, int], Any]) -> None:
        """Serves what the workers' engines want peers to know. Raises NetworkError if the
        port is taken."""
        if self._channel is None:
            host, port = self._settings.side_channel_host, self._settings.side_channel_port
            self._channel = SideChannel.open(host, port)
            logger.info("side channel of %s at %s:%d", self._settings.engine_id, host, port)
        for (pp_rank, tp_rank), rank in metadata.items():
            if not isinstance(rank, HandshakeMetadata):
                raise TypeError(
                    f"worker pp {pp_rank} tp {tp_rank} sent {type(rank).__name__}: all "
                    "workers must run NixlPushConnector of nixlpush"
                )
            self._channel.publish(rank.payload, pp_rank=pp_rank, tp_rank=tp_rank)

    def shutdown(self) -> None:
        if self._channel is not None:
            self._channel.close()

    # ---- D: a request whose KV comes from P ----

    def on_new_request(self, request: Request) -> None:
        params = request.kv_transfer_params
        if not params:
            return
        if params.get("do_remote_decode"):
            self._truncate(request, params)
        if params.get("do_remote_prefill"):
            self._announce(request.request_id, params)

    def _announce(self, request_id: str, params: dict[str, Any]) -> None:
        """Lets the engine keep P's lease alive while the request waits for blocks."""
        try:
            producer = transfer_params.producer(params)
        except ValueError as error:
            # The request stays without a receive, so it is rejected when it gets blocks.
            logger.error("kv_transfer_params of request %s: %s", request_id, error)
            return
        receive = _Receive(next(self._tags), producer)
        self._receives[request_id] = receive
        self._expects[receive.tag] = _expect(request_id, receive)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_prefill"):
            return 0, False
        tokens = len(request.prompt_token_ids or ())
        if tokens > self._backoff:
            tokens -= self._backoff
        missing = tokens - num_computed_tokens
        return (missing, True) if missing > 0 else (0, False)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_prefill"):
            return
        # Once only: after a preemption the request computes its prompt itself.
        params["do_remote_prefill"] = False
        request_id = request.request_id
        receive = self._receives.get(request_id)
        if num_external_tokens <= 0:
            self._withdraw(request_id)
        elif receive is None:
            block_ids, _ = self._missing_blocks(blocks)
            self._rejected.append((request_id, block_ids))
        else:
            receive.has_blocks = True
            self._expects[receive.tag] = _expect(
                request_id, receive, *self._missing_blocks(blocks)
            )

    def _missing_blocks(self, blocks: KVCacheBlocks) -> tuple[bytes, bytes]:
        """The blocks to receive, packed. Those with a hash are D's own prefix hit."""
        return pack_blocks(self._block_lists.of(blocks.get_unhashed_block_ids_all_groups()))

    def _withdraw(self, request_id: str) -> None:
        """Ends what D expects, if anything. A receive with blocks stays until its event."""
        receive = self._receives.get(request_id)
        if receive is None:
            return
        if receive.has_blocks:
            self._cancels.append(receive.tag)
            return
        del self._receives[request_id]
        if self._expects.pop(receive.tag, None) is None:
            self._cancels.append(receive.tag)

    # ---- P: a request whose KV goes to D ----

    def _truncate(self, request: Request, params: dict[str, Any]) -> None:
        """Drops the tokens of the prompt that D computes itself, once per request."""
        count = self._backoff
        if (
            not count
            or params.get("_p_side_truncated")
            or request.num_prompt_tokens <= count
            or request.get_skip_reading_prefix_cache()
        ):
            return
        if request.prompt_token_ids is not None:
            del request.prompt_token_ids[-count:]
        elif request.prompt_embeds is not None:
            request.prompt_embeds = request.prompt_embeds[:-count]
        else:
            return
        del request._all_token_ids[-count:]
        request.num_prompt_tokens -= count
        request.max_tokens = 1
        params["_p_side_truncated"] = True

    def request_finished(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """(blocks must stay until a worker reports the request, parameters for D)."""
        params = request.kv_transfer_params
        if not params:
            return False, None
        self._withdraw(request.request_id)
        params["do_remote_prefill"] = False
        if not params.get("do_remote_decode"):
            return False, None
        if request.status not in _FINISHED:
            self._decline(request, params, f"it ended with {request.get_finished_reason()}")
            return False, None
        groups = self._block_lists.of(block_ids)
        hold = any(groups)
        if hold:
            self._offer(request, params, groups)
        else:
            self._decline(request, params, "it has no blocks")
        return hold, self._params_for_consumer(request, params, groups, hold)

    def _decline(self, request: Request, params: dict[str, Any], why: str) -> None:
        """Lets the workers tell the consumer that no KV will come."""
        transfer_id = _transfer_id(request, params)
        self._declines.append(Decline(request.request_id, transfer_id, why))

    def _offer(
        self, request: Request, params: dict[str, Any], groups: tuple[list[int], ...]
    ) -> None:
        request_id = request.request_id
        self._sends.add(request_id)
        self._offers.append(
            Offer(
                next(self._tags),
                request_id,
                _transfer_id(request, params),
                *pack_blocks(groups),
                tokens=request.num_computed_tokens,
            )
        )

    def _params_for_consumer(
        self,
        request: Request,
        params: dict[str, Any],
        groups: tuple[list[int], ...],
        hold: bool,
    ) -> dict[str, Any]:
        """What a router may pass on to D as it is; vLLM's keys, and transfer_id if given."""
        result = {
            **self._as_producer,
            "remote_block_ids": groups,
            "remote_request_id": request.request_id,
            "remote_num_tokens": request.num_computed_tokens if hold else 0,
        }
        if params.get("transfer_id"):
            result["transfer_id"] = params["transfer_id"]
        return result

    # ---- Every step ----

    def build_connector_meta(self) -> StepMetadata:
        if not self._has_changes():
            return StepMetadata()
        metadata = StepMetadata(
            tuple(self._expects.values()),
            tuple(self._offers),
            tuple(self._cancels),
            tuple(self._rejected),
            tuple(self._declines),
        )
        self._reset()
        return metadata

    def update_connector_output(self, output: KVConnectorOutput) -> None:
        for request_id in output.finished_recving or ():
            self._receives.pop(request_id, None)
        self._sends.difference_update(output.finished_sending or ())

    def has_pending_push_work(self) -> bool:
        """Whether the engine loop must go on: P's blocks wait for their event, or something
        is to be told to the workers."""
        return bool(self._sends) or self._has_changes()

    def _has_changes(self) -> bool:
        return bool(
            self._expects
            or self._offers
            or self._cancels
            or self._rejected
            or self._declines
        )


def _transfer_id(request: Request, params: dict[str, Any]) -> str | None:
    """What pairs the legs if the router gave it; a malformed one is left out."""
    try:
        return transfer_params.transfer_id(params)
    except ValueError as error:
        request_id = request.request_id
        logger.error("kv_transfer_params of request %s: %s; ignored", request_id, error)
        return None


def _expect(
    request_id: str, receive: _Receive, block_ids: bytes = b"", block_counts: bytes = b""
) -> Expect:
    producer = receive.producer
    return Expect(
        tag=receive.tag,
        request_id=request_id,
        producer_engine_id=producer.engine_id,
        producer_host=producer.host,
        producer_port=producer.port,
        producer_tp_size=producer.tp_size,
        producer_pp_size=producer.pp_size,
        transfer_id=producer.transfer_id,
        remote_request_id=producer.request_id,
        block_ids=block_ids,
        block_counts=block_counts,
    )
