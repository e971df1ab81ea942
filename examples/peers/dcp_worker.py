"""A DCP worker: it registers for the service "echo", answers one request with its data, and leaves.

python dcp_worker.py tcp://127.0.0.1:5555
"""

import sys

import zmq

HEADER = [b"", b"DGBX\x01"]  # address delimiter, protocol
REGISTRATION, PING, PONG, REQUEST, REPLY, RECONNECT = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"
SERVICE = b"echo"

with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
    dealer.linger = 30_000
    dealer.connect(sys.argv[1])
    dealer.send_multipart([*HEADER, REGISTRATION, SERVICE])
    while True:
        if not dealer.poll(1000):
            dealer.send_multipart([*HEADER, PING])  # a sign of life, each second that nothing else is sent
            continue
        delimiter, protocol, kind, *parts = dealer.recv_multipart()
        if kind == REGISTRATION:
            print("registered", *parts, flush=True)
        elif kind == RECONNECT:  # the broker does not know this worker: it has restarted
            dealer.send_multipart([*HEADER, REGISTRATION, SERVICE])
        elif kind == REQUEST:
            service, client, client_delimiter, *rest = parts
            end = rest.index(b"")
            metadata, data = rest[:end], rest[end + 1 :]
            print(f"request from {client.hex()}: metadata {metadata}, data {data}")
            dealer.send_multipart([*HEADER, REPLY, client, b"", *metadata, b"", *data])
            break
        # What remains is PONG, the answer to a ping.
