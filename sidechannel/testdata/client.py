"""A REQ client that asks as stock vLLM 0.32 does.

Sends each message given in hex on one socket and prints the frames of each answer, in
hex and separated by spaces, or "timeout".
"""

import sys

import zmq

host, port = sys.argv[1:3]
ctx = zmq.Context()
sock = ctx.socket(zmq.REQ)
if ":" in host:
    sock.setsockopt(zmq.IPV6, 1)
    host = f"[{host}]"
sock.connect(f"tcp://{host}:{port}")
sock.setsockopt(zmq.RCVTIMEO, 5000)
for message in sys.argv[3:]:
    sock.send(bytes(int(message.removeprefix("zeros:"))) if message.startswith("zeros:") else bytes.fromhex(message))
    try:
        print(*(part.hex() for part in sock.recv_multipart()))
    except zmq.Again:
        print("timeout")
        break
ctx.destroy(linger=0)
