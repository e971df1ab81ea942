"""An mc0 subscriber: it subscribes to the topic "news", prints one message, and leaves.

python mc0_subscriber.py tcp://127.0.0.1:61616
"""

import sys

import zmq

TTL_MS = 10_000  # the middleware may forget a client that it has not heard from for so long

with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
    dealer.linger = 30_000
    dealer.connect(sys.argv[1])
    # An empty frame, the verb, and pairs of a header's key and value.
    dealer.send_multipart([b"", b"CONNECT", b"VERSION", b"0.3", b"TTL", b"%d" % TTL_MS])
    # Another empty frame ends the headers; topics follow. An ID asks for an answer.
    dealer.send_multipart([b"", b"SUB", b"ID", b"1", b"", b"news"])
    while True:
        if not dealer.poll(TTL_MS / 2):
            dealer.send_multipart([b"", b"NOOP"])
            continue
        delimiter, verb, *rest = dealer.recv_multipart()
        if verb == b"OK":
            print("subscribed", flush=True)
        elif verb == b"ERROR":
            sys.exit(f"the middleware answered with an error: {rest}")
        elif verb == b"MESSAGE":
            end = rest[::2].index(b"") * 2  # a key that is empty ends the headers
            headers, body = dict(zip(rest[:end:2], rest[1:end:2], strict=True)), rest[end + 1 :]
            print(headers.pop(b"TOPIC"), headers, body)
            dealer.send_multipart([b"", b"DISCONNECT"])
            break
        # What remains is NOOP, which wants no answer.
