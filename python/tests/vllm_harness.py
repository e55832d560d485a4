# SPDX-License-Identifier: Apache-2.0
"""vLLM's real scheduler around the connector, with an engine that does what a test says."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from nixlpush import (
    RECEIVE_FAILED,
    RECEIVED,
    SEND_FAILED,
    SENT,
    Decline,
    Event,
    Expect,
    Offer,
)
from nixlpush.vllm import NixlPushConnector, settings
from nixlpush.vllm.worker import PushWorker

BLOCK_SIZE = 16
NUM_BLOCKS = 100
LAYERS = ["model.layers.10.attn", "model.layers.2.attn"]

P_LEG = {"do_remote_decode": True, "do_remote_prefill": False}


def d_leg(**changes: Any) -> dict[str, Any]:
    """kv_transfer_params of a decode request; None removes a key."""
    params = {
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_engine_id": "engine-P",
        "remote_host": "10.0.0.1",
        "remote_port": 5600,
        "tp_size": 1,
        "remote_request_id": "cmpl-1",
        **changes,
    }
    return {key: value for key, value in params.items() if value is not None}


def write_model(folder: Path) -> Path:
    """The config of a tiny model; nothing here needs weights."""
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["Qwen3ForCausalLM"],
                "model_type": "qwen3",
                "hidden_act": "silu",
                "hidden_size": 256,
                "head_dim": 64,
                "intermediate_size": 512,
                "vocab_size": 1024,
                "num_hidden_layers": 2,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "max_position_embeddings": 4096,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1000000,
                "tie_word_embeddings": False,
                "torch_dtype": "bfloat16",
            }
        )
    )
    return folder


def attention_spec(block_size: int = BLOCK_SIZE) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=4, head_size=64, dtype=torch.bfloat16
    )


def cache_config(*specs: Any) -> KVCacheConfig:
    """One group of LAYERS per spec; default: one group of full attention."""
    groups = [KVCacheGroupSpec(LAYERS, spec) for spec in specs or (attention_spec(),)]
    page = attention_spec().page_size_bytes
    size = page * NUM_BLOCKS
    if "layers" not in KVCacheTensor.__dataclass_fields__:  # before 0.30: one per layer
        tensors = [KVCacheTensor(size=size, shared_by=[layer]) for layer in LAYERS]
        return KVCacheConfig(NUM_BLOCKS, tensors, groups)
    tensor = KVCacheTensor(
        size=size * len(LAYERS), layers=LAYERS, layer_stride=size, block_stride=page
    )
    return KVCacheConfig(NUM_BLOCKS, [tensor], groups)


def vllm_config(model: Path, **transfer: Any) -> VllmConfig:
    extra = {"kv_role": "kv_both", "engine_id": "engine-X", **transfer}
    cache = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True)
    if hasattr(cache, "get_resolved_kv_cache_layout"):
        cache.kv_cache_layout = "LBHNC"
    else:
        set_kv_cache_layout("HND")
    cache.num_gpu_blocks = NUM_BLOCKS
    return VllmConfig(
        model_config=ModelConfig(
            model=str(model), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=2048
        ),
        cache_config=cache,
        scheduler_config=SchedulerConfig(
            max_model_len=2048,
            is_encoder_decoder=False,
            max_num_seqs=16,
            max_num_batched_tokens=2048,
            async_scheduling=False,
        ),
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlPushConnector",
            kv_connector_module_path="nixlpush.vllm",
            **extra,
        ),
    )


def set_kv_cache_layout(name: str) -> None:
    """Before 0.30 the layout is a setting of the process."""
    from vllm.v1.attention.backends import utils

    utils.set_kv_cache_layout(name)


class FakeEngine:
    """Records what it is given and ends what a test tells it to end."""

    def __init__(self) -> None:
        self.expects: dict[int, Expect] = {}
        self.offers: dict[int, Offer] = {}
        self.cancels: list[int] = []
        self.declines: list[Decline] = []
        self.refuse: set[str] = set()
        self.submits = 0
        self.counters: dict[str, int] = {}
        self._events: list[Event] = []

    def submit(
        self, expects: Any = (), offers: Any = (), cancels: Any = (), declines: Any = ()
    ) -> None:
        from nixlpush import InvalidArgumentError

        self.submits += 1
        for entry in (*expects, *offers):
            if entry.request_id in self.refuse:
                raise InvalidArgumentError(-1, f"request {entry.request_id} is refused")
        self.expects.update({expect.tag: expect for expect in expects})
        self.offers.update({offer.tag: offer for offer in offers})
        self.cancels += cancels
        self.declines += declines

    def end(self, tag: int, kind: int, reason: int = 0, message: str = "") -> None:
        self._events.append(
            Event(tag, kind, reason, message, 4096, 3, 8, 2_000_000, 5_000_000, 1000)
        )

    def poll(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def stats(self) -> dict[str, int]:
        from nixlpush import _abi

        return {name: 0 for name, _ in _abi.Stats._fields_[2:]} | self.counters

    def tag_of(self, request_id: str) -> int:
        entries = {**self.expects, **self.offers}.values()
        return next(entry.tag for entry in entries if entry.request_id == request_id)

    def received(self, request_id: str, ok: bool = True) -> None:
        kind = RECEIVED if ok else RECEIVE_FAILED
        self.end(self.tag_of(request_id), kind, 0 if ok else 1, "" if ok else "too late")

    def sent(self, request_id: str, ok: bool = True) -> None:
        self.end(self.tag_of(request_id), SENT if ok else SEND_FAILED, 0 if ok else 2)


class Harness:
    """One vLLM engine core without a model: a real scheduler and our connector's two parts."""

    def __init__(self, model: Path, **transfer: Any) -> None:
        config = vllm_config(model, **transfer)
        kv_cache = cache_config()
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=kv_cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_SIZE,
            log_stats=False,
        )
        self.connector = self.scheduler.connector
        self.engine = FakeEngine()
        self.worker = PushWorker(settings.read(config), config, kv_cache)
        self.worker._engine = self.engine
        self.workers_connector = NixlPushConnector(config, KVConnectorRole.WORKER, kv_cache)
        self.workers_connector._worker = self.worker
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        self.outputs: dict[str, Any] = {}
        self.free_at_start = self.free_blocks()

    def free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def add(
        self, request_id: str, params: dict[str, Any] | None, tokens: int = 40, seed: int = 0
    ) -> Request:
        sampling = SamplingParams(
            max_tokens=1 if params and params.get("do_remote_decode") else 4,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params} if params else None,
        )
        sampling.update_from_generation_config({}, eos_token_id=2)
        request = Request(
            request_id=request_id,
            prompt_token_ids=[(seed + i) % 1000 for i in range(tokens)],
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        return request

    def step(self) -> list[str]:
        """One scheduler step; returns the requests that ran. Everything crosses a pickle, as
        between vLLM's processes."""
        output = self.scheduler.schedule()
        self.worker.start_step(pickle.loads(pickle.dumps(output.kv_connector_metadata)))
        results = pickle.loads(pickle.dumps(self.take_results()))
        ran = list(output.num_scheduled_tokens)
        model_output = ModelRunnerOutput(
            req_ids=ran,
            req_id_to_index={request_id: i for i, request_id in enumerate(ran)},
            sampled_token_ids=[[7] for _ in ran],
            kv_connector_output=results,
        )
        for outputs in self.scheduler.update_from_output(output, model_output).values():
            self.outputs.update({o.request_id: o for o in outputs.outputs})
        return ran

    def take_results(self) -> KVConnectorOutput:
        """What the worker reports, by the hooks that this vLLM calls."""
        connector = self.workers_connector
        if hasattr(KVConnectorBase_V1, "get_transfer_results"):
            results = connector.get_transfer_results(set())
            return KVConnectorOutput(
                finished_sending=results.finished_sending,
                finished_recving=results.finished_recving,
                failed_recving=results.failed_recving,
                invalid_block_ids=connector.get_block_ids_with_load_errors(),
            )
        sent, received = connector.get_finished(set())
        return KVConnectorOutput(
            finished_sending=sent,
            finished_recving=received,
            invalid_block_ids=connector.get_block_ids_with_load_errors(),
        )

    def run(self, limit: int = 30) -> None:
        """Steps until nothing is left to do."""
        for _ in range(limit):
            if not self.scheduler.has_requests():
                return
            self.step()
        raise AssertionError(f"still busy after {limit} steps")

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def assert_idle(self) -> None:
        """Nothing is left anywhere: no request, no block, no entry of ours."""
        assert not self.scheduler.has_requests()
        assert not self.scheduler.requests
        assert self.free_blocks() == self.free_at_start
        ours = self.connector.scheduler
        assert not ours._receives
        assert not ours._sends
        assert not self.worker._pending
