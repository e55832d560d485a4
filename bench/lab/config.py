# SPDX-License-Identifier: Apache-2.0
"""The configuration of a lab engine: 64 layers, blocks of 16 tokens, small heads."""
import json
import mmap
import pathlib

import torch
from vllm.config import (
    CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, ParallelConfig, SchedulerConfig,
    VllmConfig, set_current_vllm_config)
from vllm.distributed.parallel_state import (
    init_distributed_environment, initialize_model_parallel)
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor)

LAYERS, BLOCK_TOKENS, BLOCKS, HEAD_DIM = 64, 16, 4096, 32
LONGEST = 16384 + 64  # tokens
NAMES = [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]
SPEC = FullAttentionSpec(
    block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=HEAD_DIM, dtype=torch.bfloat16)
PAGE = SPEC.page_size_bytes

# vLLM's kernels for CPUs want blocks of 32 tokens or more. No kernel runs here, and GPUs use 16.
CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda *_: [BLOCK_TOKENS])


def vllm_config(folder, transfer, prefix_caching):
    """transfer: the fields of --kv-transfer-config."""
    cache = CacheConfig(block_size=BLOCK_TOKENS, enable_prefix_caching=prefix_caching)
    cache.kv_cache_layout = "LBHNC"
    cache.num_gpu_blocks = BLOCKS
    return VllmConfig(
        model_config=ModelConfig(model=str(_model(folder)), skip_tokenizer_init=True,
                                 dtype="bfloat16", max_model_len=LONGEST),
        cache_config=cache,
        scheduler_config=SchedulerConfig(
            max_model_len=LONGEST, is_encoder_decoder=False, max_num_seqs=64,
            max_num_batched_tokens=LONGEST, async_scheduling=False),
        parallel_config=ParallelConfig(), device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(**transfer))


def join_group_of_one(config):
    """What a worker does before it makes its connector: tensor parallel size 1."""
    with set_current_vllm_config(config):
        init_distributed_environment(
            world_size=1, rank=0, local_rank=0, backend="gloo",
            distributed_init_method=f"tcp://127.0.0.1:{config.kv_transfer_config.kv_port}")
        initialize_model_parallel(1, 1)


def cache_config():
    tensor = KVCacheTensor(size=PAGE * BLOCKS * LAYERS, layers=NAMES,
                           layer_stride=PAGE * BLOCKS, block_stride=PAGE)
    return KVCacheConfig(BLOCKS, [tensor], [KVCacheGroupSpec(NAMES, SPEC)])


def cache_memory(path):
    """The KV cache in a file, so that another process can see bytes arrive. Returns the tensors
    by layer."""
    size = PAGE * BLOCKS * LAYERS
    with pathlib.Path(path).open("w+b") as file:
        file.truncate(size)
        memory = mmap.mmap(file.fileno(), size)
    memory[::4096] = bytes(size // 4096)  # no page fault is part of a measurement
    whole = torch.frombuffer(memory, dtype=torch.bfloat16)
    layers = whole.view(LAYERS, BLOCKS, 1, BLOCK_TOKENS, 2 * HEAD_DIM)
    return dict(zip(NAMES, layers, strict=True))


def _model(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16",
        "num_hidden_layers": LAYERS, "hidden_size": 256, "intermediate_size": 512,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "vocab_size": 1024, "max_position_embeddings": LONGEST, "rope_theta": 1e6,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False}))
    return folder
