"""A DCP client: it sends one request to the service "echo" and prints the reply.

python dcp_client.py tcp://127.0.0.1:5555
"""

import sys

import zmq

PROTOCOL = b"DGBX\x01"
REQUEST, REPLY = b"\x04", b"\x05"

with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
    dealer.rcvtimeo = dealer.linger = 30_000
    dealer.connect(sys.argv[1])
    dealer.send_multipart(
        [
            b"",  # address delimiter
            PROTOCOL,
            REQUEST,
            b"echo",  # service name
            b"",  # client address delimiter; the broker inserts the address in front of it
            b"request 1",  # metadata: any number of non-empty parts, which the reply brings back
            b"",  # metadata delimiter
            b"hello",  # data: any number of parts
        ]
    )
    delimiter, protocol, kind, client, client_delimiter, *rest = dealer.recv_multipart()

if (delimiter, protocol, kind, client_delimiter) != (b"", PROTOCOL, REPLY, b""):
    sys.exit("this is no reply")
end = rest.index(b"")
print(f"metadata {rest[:end]}, data {rest[end + 1 :]}")
