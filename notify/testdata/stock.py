"""Decodes and encodes as stock vLLM does, for the interop test.

Reads lines "<kind> <hex>", answers each with the hex of what stock encodes after it has
decoded it with its own types, or with "error: ...".
"""

import sys

import msgspec
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import metadata as stock

TYPES = {"metadata": stock.NixlAgentMetadata, "payload": stock.NixlHandshakePayload}

for line in sys.stdin:
    kind, _, data = line.strip().partition(" ")
    try:
        decoder = msgspec.msgpack.Decoder(TYPES[kind]) if kind in TYPES else msgspec.msgpack.Decoder()
        print(msgspec.msgpack.encode(decoder.decode(bytes.fromhex(data))).hex(), flush=True)
    except (msgspec.DecodeError, msgspec.ValidationError) as e:
        print(f"error: {e}", flush=True)
