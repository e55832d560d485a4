# SPDX-License-Identifier: Apache-2.0
"""The connector of corrupt.py, in a vLLM whose attention on a CPU takes blocks of 16 tokens. Its
kernel can, but its backend admits multiples of 32 only."""
import corrupt
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(
    lambda kv_cache_spec=None: [MultipleOf(16)])


class NixlPushConnector(corrupt.NixlPushConnector):
    pass
