#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a tiny Qwen3 checkpoint whose greedy answer depends on every block of the prompt.

A model of small random weights repeats its last token whatever its KV cache holds, so a
comparison of answers would prove nothing. Here attention is strong (large values) and neither so
sharp that it skips blocks nor so broad that all tokens become alike, and the head of the model is
sharp. Both kinds of dependence are tested: `demo.py` changes tokens, `faults.py` a KV block.

usage: tiny_model.py FOLDER        (needs torch and safetensors)
"""
import argparse
import json
import math
import pathlib

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 4, 256, 8, 4, 64, 384, 1024
SEED = 20

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16",
    "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "intermediate_size": FFN,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
    "vocab_size": VOCAB, "max_position_embeddings": 32768, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False,
    "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 0, "eos_token_id": 1,
}


def tensors():
    """The weights by name. gain is the factor by which a matrix grows the norm of its input."""
    import torch

    random = torch.Generator().manual_seed(SEED)

    def matrix(rows, columns, gain):
        scale = gain / math.sqrt(columns)
        return (torch.randn(rows, columns, generator=random) * scale).bfloat16()

    def constant(size, value=1.0):
        return torch.full((size,), value, dtype=torch.bfloat16)

    yield "model.embed_tokens.weight", matrix(VOCAB, HIDDEN, math.sqrt(HIDDEN) * 2)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        attention, mlp = at + "self_attn.", at + "mlp."
        yield at + "input_layernorm.weight", constant(HIDDEN)
        yield attention + "q_proj.weight", matrix(HEADS * HEAD_DIM, HIDDEN, 1)
        yield attention + "k_proj.weight", matrix(KV_HEADS * HEAD_DIM, HIDDEN, 1)
        yield attention + "v_proj.weight", matrix(KV_HEADS * HEAD_DIM, HIDDEN, 4)
        yield attention + "o_proj.weight", matrix(HIDDEN, HEADS * HEAD_DIM, 4)
        yield attention + "q_norm.weight", constant(HEAD_DIM, 2)
        yield attention + "k_norm.weight", constant(HEAD_DIM, 2)
        yield at + "post_attention_layernorm.weight", constant(HIDDEN)
        yield mlp + "gate_proj.weight", matrix(FFN, HIDDEN, 1)
        yield mlp + "up_proj.weight", matrix(FFN, HIDDEN, 1)
        yield mlp + "down_proj.weight", matrix(HIDDEN, FFN, 0.5)
    yield "model.norm.weight", constant(HIDDEN)
    yield "lm_head.weight", matrix(VOCAB, HIDDEN, 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors()), folder / "model.safetensors", metadata={"format": "pt"})
    # Last, so that a folder with a config.json is a complete one.
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


if __name__ == "__main__":
    main()
