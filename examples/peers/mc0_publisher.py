"""An mc0 publisher: it puts one message to the topic "news" and waits until the middleware confirms it.

python mc0_publisher.py tcp://127.0.0.1:61616
"""

import sys

import zmq

with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
    dealer.rcvtimeo = dealer.linger = 30_000
    dealer.connect(sys.argv[1])
    # An empty frame, the verb, and pairs of a header's key and value.
    dealer.send_multipart([b"", b"CONNECT", b"VERSION", b"0.3"])
    # Another empty frame ends the headers; the body is any number of frames. An ID asks for an answer.
    dealer.send_multipart([b"", b"PUT", b"ID", b"1", b"TOPIC", b"news", b"X-Author", b"Ada", b"", b"hello"])
    delimiter, verb, *headers = dealer.recv_multipart()
    dealer.send_multipart([b"", b"DISCONNECT"])

print(verb, *headers)
if [verb, *headers] != [b"OK", b"ID", b"1"]:
    sys.exit("the middleware refused the message")
