"""Writes golden.json: messages as stock vLLM encodes them.

Run it with a Python that has vLLM 0.32: python golden.py > golden.json
"""

import json

import msgspec
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import metadata as stock

encode = msgspec.msgpack.encode

# What the decode scheduler of vLLM 0.32 stages for a request, with its tuple of lists.
REGISTRATION = {
    "request_id": "id-1",
    "decode_engine_id": "fba8d3a4-3c5e-4a0e-9f7b-0c8f5f2f6f10",
    "decode_host": "localhost",
    "decode_port": 5600,
    "decode_tp_size": 1,
    "local_block_ids": ([1, 2, 3],),
    "remote_engine_id": "my-engine-id",
    "remote_host": "my-host",
    "remote_port": 1234,
    "remote_tp_size": 1,
    "remote_pp_size": 1,
}

# Every width of integer and string header, several groups, one of them empty.
WIDE = REGISTRATION | {
    "request_id": "cmpl-" + "ü" * 200 + "-0-0123abcd",
    "decode_port": 65535,
    "decode_tp_size": 128,
    "local_block_ids": (
        [0, 127, 128, 255, 256, 65535, 65536, 4294967295],
        [],
        list(range(1000, 1040)),
    ),
    "remote_port": 127,
}

PLAIN = stock.NixlAgentMetadata(
    engine_id="engine-0",
    agent_metadata=bytes(range(256)) * 2,
    kv_caches_base_addr=[0x7F00_0000_0000, 2**64 - 1, 5],
    device_id=0,
    num_blocks=1024,
    block_lens=[32768, 32768, 32768],
    block_strides=[32768, 65536, 32768],
    kv_cache_layout="LBHNC",
    block_size=16,
    ssm_sizes=(0, 0),
    attn_backend_name="CPU_ATTN",
    physical_blocks_per_logical_kv_block=1,
)

FULL = stock.NixlAgentMetadata(
    engine_id="engine-1",
    agent_metadata=b"",
    kv_caches_base_addr=[4096],
    device_id=-1,
    num_blocks=0,
    block_lens=[70000],
    block_strides=[70001],
    kv_cache_layout="BLHNC",
    block_size=128,
    ssm_sizes=(6144, 1048576),
    attn_backend_name="FLASH_ATTN",
    physical_blocks_per_logical_kv_block=4,
    region_num_blocks=[10, 20],
    region_group_ids=[0, -1, -40000],
    region_names=["model.layers.0.self_attn.attn"],
    region_mem_types=["VRAM", "DRAM"],
    dcp_size=2,
    pcp_size=3,
    ple_block_len=12345,
    region_members=[["a", "b"], [], ["c"]],
    packed_member_layouts={"x": (0, 100), "y": (100, 65536)},
)

print(
    json.dumps(
        {
            name: data.hex()
            for name, data in {
                "registration": stock.PUSH_REG_NOTIF_PREFIX + encode(REGISTRATION),
                "registration_wide": stock.PUSH_REG_NOTIF_PREFIX + encode(WIDE),
                "metadata": encode(PLAIN),
                "metadata_full": encode(FULL),
                "payload": encode(stock.NixlHandshakePayload("h" * 64, b"x" * 300)),
                "request_0_0": encode((stock.GET_META_MSG, 0, 0)),
                "request_3_200": encode((stock.GET_META_MSG, 3, 200)),
                "clock": encode(1234.5),
            }.items()
        },
        indent=1,
    )
)
