"""A CDTP receiver: it connects a PULL socket to a sender and prints one message.

python cdtp_receiver.py tcp://127.0.0.1:23999
"""

import sys

import msgpack
import zmq

with zmq.Context() as context, context.socket(zmq.PULL) as pull:
    pull.rcvtimeo = 30_000
    pull.connect(sys.argv[1])
    header, *payload = pull.recv_multipart()

# The header frame: four MessagePack objects, one after the other.
unpacker = msgpack.Unpacker()
unpacker.feed(header)
identifier, sender, timestamp, tags = unpacker
if identifier != "CDTP\x01":
    sys.exit(f"not CDTP, version 1: {identifier!r}")
print(f"{sender} at {timestamp.to_unix_nano()} ns: {tags}, {len(payload)} payload frames: {payload}")
