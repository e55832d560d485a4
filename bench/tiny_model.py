#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a tiny checkpoint whose greedy answer depends on every block of the prompt.

A model of small random weights repeats its last token whatever its KV cache holds, so a
comparison of answers would prove nothing. Here attention is strong (large values) and neither so
sharp that it skips blocks nor so broad that all tokens become alike, and the model's head is
sharp. Both kinds of dependence are tested: `demo.py` changes tokens, `faults.py` a block of KV,
and `geometry.py` one of each group of layers.

usage: tiny_model.py KIND FOLDER        (needs torch and safetensors)
"""
import argparse
import json
import math
import pathlib

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 4, 256, 8, 4, 64, 384, 1024
WINDOW = 200  # tokens
# Of MLA: all that vLLM's kernels take, for CPUs the first two, for Hopper the last.
LATENT, ROPE, VALUE = 512, 64, 128
# Of Mamba. Its channels are HEADS * MAMBA_DIM, twice HIDDEN.
MAMBA_DIM, MAMBA_GROUPS, MAMBA_STATE, MAMBA_CONV = 64, 2, 32, 4
SEED = 20

COMMON = {
    "torch_dtype": "bfloat16", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
    "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB, "max_position_embeddings": 32768, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False,
    "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 0, "eos_token_id": 1,
}
# DeepSeek's kind of RoPE. The plain one of MLA is computed by vLLM 0.32 on a CPU otherwise for a
# prompt than for one token: its kernel takes slices of wider rows for whole ones.
YARN = {
    "rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0, "beta_fast": 32, "beta_slow": 1,
    "original_max_position_embeddings": 4096, "mscale": 0, "mscale_all_dim": 0,
}
LINEAR_LAYERS = "linear_attention", "full_attention", "linear_attention", "full_attention"
WINDOW_LAYERS = "sliding_attention", "full_attention", "sliding_attention", "full_attention"


class Weights:
    """Random matrices; gain is the factor by which one grows the norm of its input."""

    def __init__(self):
        import torch

        self._torch = torch
        self._random = torch.Generator().manual_seed(SEED)

    def matrix(self, rows, columns, gain):
        scale = gain / math.sqrt(columns)
        return (self._torch.randn(rows, columns, generator=self._random) * scale).bfloat16()

    def constant(self, size, value=1.0):
        return self._torch.full((size,), value, dtype=self._torch.bfloat16)

    def ramp(self, size, first, last):
        return self._torch.linspace(first, last, size).bfloat16()


# ---- Layers: what follows the layer's name, and the weights of one layer ----------------


def normed_attention(weights):
    """Qwen3's, which norms q and k."""
    yield from attention(weights, 1)
    yield "self_attn.q_norm.weight", weights.constant(HEAD_DIM, 2)
    yield "self_attn.k_norm.weight", weights.constant(HEAD_DIM, 2)


def attention(weights, gain=2, head_dim=HEAD_DIM):
    """gain: of q and k, which decides how sharp the attention is."""
    yield "self_attn.q_proj.weight", weights.matrix(HEADS * head_dim, HIDDEN, gain)
    yield "self_attn.k_proj.weight", weights.matrix(KV_HEADS * head_dim, HIDDEN, gain)
    yield "self_attn.v_proj.weight", weights.matrix(KV_HEADS * head_dim, HIDDEN, 4)
    yield "self_attn.o_proj.weight", weights.matrix(HIDDEN, HEADS * head_dim, 4)


def narrow_attention(weights):
    """Granite's heads share HIDDEN."""
    yield from attention(weights, head_dim=HIDDEN // HEADS)


def latent_attention(weights):
    """MLA: a head's k is HEAD_DIM numbers out of the latent, then ROPE that heads share."""
    yield "self_attn.q_proj.weight", weights.matrix(HEADS * (HEAD_DIM + ROPE), HIDDEN, 2)
    yield "self_attn.kv_a_proj_with_mqa.weight", weights.matrix(LATENT + ROPE, HIDDEN, 2)
    yield "self_attn.kv_a_layernorm.weight", weights.constant(LATENT)
    yield "self_attn.kv_b_proj.weight", weights.matrix(HEADS * (HEAD_DIM + VALUE), LATENT, 2)
    yield "self_attn.o_proj.weight", weights.matrix(HIDDEN, HEADS * VALUE, 4)


def mamba(weights):
    """Heads forget at different rates, the slowest one within thousands of tokens."""
    channels = HEADS * MAMBA_DIM
    mixed = channels + 2 * MAMBA_GROUPS * MAMBA_STATE
    yield "mamba.in_proj.weight", weights.matrix(channels + mixed + HEADS, HIDDEN, 1)
    yield "mamba.conv1d.weight", weights.matrix(mixed, MAMBA_CONV, 2).unsqueeze(1)
    yield "mamba.conv1d.bias", weights.constant(mixed, 0)
    yield "mamba.A_log", weights.ramp(HEADS, -6, 0)
    yield "mamba.D", weights.constant(HEADS, 0.1)
    yield "mamba.dt_bias", weights.constant(HEADS, -2)
    yield "mamba.norm.weight", weights.constant(channels)
    yield "mamba.out_proj.weight", weights.matrix(HIDDEN, channels, 4)


def mlp(weights):
    yield "mlp.gate_proj.weight", weights.matrix(FFN, HIDDEN, 1)
    yield "mlp.up_proj.weight", weights.matrix(FFN, HIDDEN, 1)
    yield "mlp.down_proj.weight", weights.matrix(HIDDEN, FFN, 0.5)


def shared_mlp(weights):
    """Granite's, with gate and up in one matrix."""
    yield "shared_mlp.input_linear.weight", weights.matrix(2 * FFN, HIDDEN, 1)
    yield "shared_mlp.output_linear.weight", weights.matrix(HIDDEN, FFN, 0.5)


# ---- Kinds: a configuration, and the parts of its layers --------------------------------

KINDS = {
    "full": (
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": HEAD_DIM},
        [(normed_attention, mlp)] * LAYERS,
    ),
    "window": (
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": HEAD_DIM,
         "layer_types": WINDOW_LAYERS, "sliding_window": WINDOW},
        [(attention, mlp)] * LAYERS,
    ),
    "latent": (
        {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
         "num_key_value_heads": HEADS, "q_lora_rank": None, "kv_lora_rank": LATENT,
         "qk_nope_head_dim": HEAD_DIM, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE,
         "first_k_dense_replace": LAYERS, "rope_parameters": YARN},
        [(latent_attention, mlp)] * LAYERS,
    ),
    "mamba": (
        {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
         "layer_types": LINEAR_LAYERS, "num_local_experts": 0, "shared_intermediate_size": FFN,
         "attention_multiplier": (HIDDEN // HEADS) ** -0.5, "position_embedding_type": "rope",
         "mamba_n_heads": HEADS, "mamba_d_head": MAMBA_DIM, "mamba_n_groups": MAMBA_GROUPS,
         "mamba_d_state": MAMBA_STATE, "mamba_d_conv": MAMBA_CONV, "mamba_expand": 2},
        [(mamba, shared_mlp), (narrow_attention, shared_mlp)] * (LAYERS // 2),
    ),
}


def tensors(layers):
    """The weights by name."""
    weights = Weights()
    yield "model.embed_tokens.weight", weights.matrix(VOCAB, HIDDEN, math.sqrt(HIDDEN) * 2)
    for layer, (mixer, feed_forward) in enumerate(layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", weights.constant(HIDDEN)
        yield from ((at + name, tensor) for name, tensor in mixer(weights))
        yield at + "post_attention_layernorm.weight", weights.constant(HIDDEN)
        yield from ((at + name, tensor) for name, tensor in feed_forward(weights))
    yield "model.norm.weight", weights.constant(HIDDEN)
    yield "lm_head.weight", weights.matrix(VOCAB, HIDDEN, 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    config, layers = KINDS[options.kind]
    from safetensors.torch import save_file

    options.folder.mkdir(parents=True, exist_ok=True)
    weights = dict(tensors(layers))
    save_file(weights, options.folder / "model.safetensors", metadata={"format": "pt"})
    # Last, so that a folder with a config.json is a complete one.
    (options.folder / "config.json").write_text(json.dumps(COMMON | config, indent=2) + "\n")


if __name__ == "__main__":
    main()
