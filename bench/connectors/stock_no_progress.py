# SPDX-License-Identifier: Apache-2.0
"""vLLM's own push connector with NIXL's progress thread switched off (to find causes)."""
import functools

from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker, connector

base_worker.nixl_agent_config = functools.partial(
    base_worker.nixl_agent_config, enable_prog_thread=False)


class NixlPushConnector(connector.NixlPushConnector):
    pass
