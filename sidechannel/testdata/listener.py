"""A ROUTER that answers as the listener of stock vLLM 0.32 does.

Prints its port, then answers every request with the payload given in hex, and dies of a
rank other than (0, 0), as stock does.
"""

import struct
import sys
import time

import zmq

host, payload = sys.argv[1], bytes.fromhex(sys.argv[2])
sock = zmq.Context().socket(zmq.ROUTER)
if ":" in host:
    sock.setsockopt(zmq.IPV6, 1)
    host = f"[{host}]"
port = sock.bind_to_random_port(f"tcp://{host}")
print(port, flush=True)
while True:
    identity, _, message = sock.recv_multipart()
    tag, ranks = message[:15], message[15:]
    if tag != b"\x93\xc4\x0cget_meta_msg":
        print(f"unexpected message {message!r}", file=sys.stderr)
    if ranks != b"\x00\x00":
        raise KeyError(ranks)
    clock = b"\xcb" + struct.pack(">d", time.perf_counter())
    sock.send_multipart((identity, b"", payload, clock))
