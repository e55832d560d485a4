# SPDX-License-Identifier: Apache-2.0
"""A worker of vLLM that shares one GPU with the other ranks of its engine.

NCCL refuses two ranks on one GPU of one host. So each rank has a host of its own, as far as NCCL
knows, and they talk over its sockets: slow, but the same answers.
"""
import os

from vllm.v1.worker import gpu_worker


class Worker(gpu_worker.Worker):
    def init_device(self):
        os.environ.update(NCCL_HOSTID=f"rank {self.rank}", NCCL_SOCKET_IFNAME="lo")
        self.local_rank = 0
        super().init_device()
