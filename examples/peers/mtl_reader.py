"""An MTL reader: it opens an anonymous session, receives one content of the queue "jobs", and confirms it.

python mtl_reader.py tcp://127.0.0.1:5975
"""

import json
import struct
import sys

import zmq

LEASE, RESPONSE, SUMMON, CONTENT, CONFIRM, PING, PONG = 1, 2, 3, 5, 6, 8, 9
endpoint = sys.argv[1]
with zmq.Context() as context, context.socket(zmq.REQ) as control, context.socket(zmq.DEALER) as data:
    control.rcvtimeo = data.rcvtimeo = control.linger = data.linger = 30_000

    # The control flow: the name of a command and its body, answered by a status and a body.
    control.connect(endpoint)
    for name, body in [
        ("Connection.Open", {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}),
        ("Connection.Profile", {"profile": "queue"}),
        ("Connection.Reader", {"resources": ["jobs"], "confirm": "full"}),
    ]:
        control.send_multipart([name.encode(), json.dumps(body).encode()])
        status, reply = control.recv_multipart()
        if not status.startswith(b"2"):
            sys.exit(f"{name}: {status.decode()} {reply.decode()}")
    port, lease = json.loads(reply)["port"], json.loads(reply)["lease"].encode()

    # The data flow, at the port of the lease: a header (type, sequence, what the type has besides) and a body.
    # A short string is a byte with its length, and its bytes.
    data.connect(f"{endpoint.rpartition(':')[0]}:{port}")
    data.send_multipart([struct.pack(">BQB", LEASE, 1, len(lease)) + lease, b""])
    data.send_multipart([struct.pack(">BQB", SUMMON, 2, len(b"jobs")) + b"jobs", b""])
    while True:
        header, payload = data.recv_multipart()
        if header[0] == PING:
            data.send_multipart([bytes([PONG]), b""])
        elif header[0] == RESPONSE and payload == b"200":
            print("leased" if header.endswith(b"\x01") else "summoned", flush=True)
        elif header[0] == CONTENT:
            sequence, length = struct.unpack(">QB", header[1:10])
            resource, properties = header[10 : 10 + length].decode(), header[10 + length :]
            print(f"content {sequence} of {resource}: {payload}, properties of {len(properties) - 4} bytes")
            data.send_multipart([struct.pack(">BQB", CONFIRM, sequence, 0), b""])  # 0: of this content alone
            break
        else:
            sys.exit(f"not served: type {header[0]}, {payload.decode()}")
