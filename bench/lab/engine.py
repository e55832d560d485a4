# SPDX-License-Identifier: Apache-2.0
"""The engine thread of vLLM, without the model: what EngineCore and its worker do in a step."""
import pickle
import time

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from lab.config import BLOCK_TOKENS
from lab.timed import Timed


class Engine:
    """A scheduler with its connector, and the worker's connector, in one process."""

    def __init__(self, config, kv_cache_config, kv_caches):
        self.scheduler = Scheduler(
            vllm_config=config, kv_cache_config=kv_cache_config, block_size=BLOCK_TOKENS,
            structured_output_manager=StructuredOutputManager(config), log_stats=False)
        self.timed = Timed()
        self.worker = KVConnectorFactory.create_connector(
            config, KVConnectorRole.WORKER, kv_cache_config)
        self.worker.register_kv_caches(kv_caches)
        self.scheduler.connector.set_xfer_handshake_metadata_pp_aware(
            {(0, 0): self.worker.get_handshake_metadata()})
        self.scheduler.connector = self.timed.wrap(self.scheduler.connector)
        self.calls = self.timed.wrap(self.worker)
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        self.received = {}  # request id -> when the engine learnt it
        self.sent = {}
        self.failed = set()
        self.transfers = []  # vLLM's statistics of each transfer

    def shutdown(self):
        self.worker.shutdown()
        self.scheduler.connector.shutdown()

    def add(self, request_id, tokens, params, seed=0, max_tokens=1):
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True,
                                  extra_args={"kv_transfer_params": params} if params else None)
        sampling.update_from_generation_config({}, eos_token_id=1)
        self.scheduler.add_request(Request(
            request_id=request_id, sampling_params=sampling, pooling_params=None,
            prompt_token_ids=[(seed + i) % 1000 for i in range(tokens)], block_hasher=self.hasher))

    def step(self, forward=None):
        """One step; forward is what the engine thread does while the model would run. Returns
        how many requests ran."""
        output = self.scheduler.schedule()
        with self.timed.span("pickle"):
            metadata = pickle.loads(pickle.dumps(output.kv_connector_metadata))
        self.step_began = time.monotonic()
        results = self._worker_step(output, metadata)
        # The worker's results travel with the model's output, so they arrive after it.
        if forward:
            forward()
        ran = list(output.num_scheduled_tokens)
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=ran, req_id_to_index={name: i for i, name in enumerate(ran)},
            sampled_token_ids=[[7] for _ in ran], kv_connector_output=results))
        return len(ran)

    def _worker_step(self, output, metadata):
        calls = self.calls
        calls.handle_preemptions(metadata)
        calls.bind_connector_metadata(metadata)
        calls.start_load_kv(None)
        calls.wait_for_save()
        results = calls.get_transfer_results(output.finished_req_ids)
        calls.get_block_ids_with_load_errors()
        stats = calls.get_kv_connector_stats()
        calls.build_connector_worker_meta()
        calls.clear_connector_metadata()
        now = time.monotonic()
        self.received.update(dict.fromkeys(results.finished_recving, now))
        self.sent.update(dict.fromkeys(results.finished_sending, now))
        self.failed |= results.failed_recving
        if stats is not None and stats.data.get("num_descriptors"):
            self.transfers.append({name: list(values) for name, values in stats.data.items()})
        return KVConnectorOutput(finished_sending=results.finished_sending,
                                 finished_recving=results.finished_recving,
                                 failed_recving=results.failed_recving)

    def run_until(self, done, seconds=60, pause=0.001, forward=None):
        """Steps, with EngineCore's pause after a step without a model, until done() is true."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError("the engine waits in vain")
            if not self.step(forward):
                time.sleep(pause)

    def settle(self):
        """Steps until no request is left."""
        self.run_until(lambda: not self.scheduler.has_requests())
        self.step()

    def churn(self, random, requests):
        """Traffic without transfers, until the free list is as a running engine has it."""
        live = []
        for i in range(requests):
            tokens = int(min(8000, random.lognormvariate(6.5, 1.2))) + 1
            self.add(f"churn-{i}", tokens, None, random.randrange(1000), random.randrange(1, 40))
            live.append(i)
            self.step()
        self.settle()
