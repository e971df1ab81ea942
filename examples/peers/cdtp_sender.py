"""A CDTP sender: it binds a PUSH socket and sends three messages to the receiver that connects.

python cdtp_sender.py tcp://127.0.0.1:23999
"""

import sys
import time

import msgpack
import zmq

with zmq.Context() as context, context.socket(zmq.PUSH) as push:
    push.sndtimeo = push.linger = 30_000
    push.bind(sys.argv[1])
    print("bound to", push.last_endpoint.decode(), flush=True)

    for number in range(3):
        # The header frame: four MessagePack objects, one after the other.
        header = (
            msgpack.packb("CDTP\x01")  # protocol identifier and version
            + msgpack.packb("Detector.one")  # name of the sending host
            + msgpack.packb(msgpack.Timestamp.from_unix_nano(time.time_ns()))
            + msgpack.packb({"event": number})  # key-value pairs, of any type
        )
        # One payload frame or more: opaque bytes.
        push.send_multipart([header, bytes(16), b"second block"])  # waits for a receiver
        print("sent", number)
