"""A sender of CDTP with one fault."""

import threading
from typing import ClassVar

import msgpack
import zmq

from trunkline.conform.checks import Subject

DAT, BOR, EOR = range(3)
NAME = "D.one"
STAMP = msgpack.Timestamp(1_700_000_000, 7)


def packed(*objects):
    return b"".join(map(msgpack.packb, objects))


def spec(name=NAME, stamp=STAMP, tags=None, start="CDTP\x01"):
    return packed(start, name, stamp, tags or {})


def release(kind, sequence, name=NAME, tags=None):
    return packed("CDTP\x01", name, kind, sequence, tags or {})


def batch(kind, *records):
    return packed("CDTP\x02", NAME, kind, list(records))


RUN = [
    [release(BOR, 0, "D.two"), b"\x80"],
    [release(DAT, 1, "D.two"), b"x"],
    [release(DAT, 2, "D.two")],
    [release(EOR, 2, "D.two"), b"\x80"],
]
GOOD = [
    [spec(), b"payload"],
    [spec("ä", tags={"run": 7, "more": [None, 1.5, {"a": b"b"}]}), b"", b"x"],
    *RUN,
    [batch(BOR, [0, {}, []], [0, {}, []])],
    [batch(DAT, [1, {"a": 1}, [b"x"]], [2, {}, []])],
    [batch(EOR, [0, {}, []], [0, {}, []])],
]

# The messages that come behind good ones, each with the requirements that they break.
WRONG = {
    "sends no payload": ([[spec()]], {"CDTP-01"}),
    "sends no configuration with BOR": ([[release(BOR, 0, "D.x")]], {"CDTP-01"}),
    "sends frames behind CDTP2": ([[batch(DAT, [3, {}, []]), b"x"]], {"CDTP-01", "CDTP-21"}),
    "puts an array around the header": ([[msgpack.packb(["CDTP\x01", NAME, STAMP, {}]), b"x"]], {"CDTP-02"}),
    "cuts the header off": ([[spec()[:-3], b"x"]], {"CDTP-02"}),
    "sends version 9": ([[spec(start="CDTP\x09"), b"x"]], {"CDTP-03"}),
    "sends the protocol as bytes": ([[spec(start=b"CDTP\x01"), b"x"]], {"CDTP-03"}),
    "sends its name as bytes": ([[spec(name=b"D"), b"x"]], {"CDTP-04"}),
    "sends a number for a time": ([[spec(stamp=1_700_000_000), b"x"]], {"CDTP-12"}),
    "sends text for a time": ([[spec(stamp="now"), b"x"]], {"CDTP-12"}),
    "sends another extension for a time": ([[spec(stamp=msgpack.ExtType(5, b"1234")), b"x"]], {"CDTP-12"}),
    "sends a time of 5 bytes": ([[packed("CDTP\x01", NAME) + b"\xc7\x05\xff12345\x80", b"x"]], {"CDTP-05"}),
    "sends too many nanoseconds": (
        [[packed("CDTP\x01", NAME) + b"\xd7\xff" + b"\xff" * 8 + b"\x80", b"x"]],
        {"CDTP-05"},
    ),
    "numbers its tags": ([[spec(tags={1: 2}), b"x"]], {"CDTP-07"}),
    "sends bytes behind the tags": ([[spec() + b"\x01", b"x"]], {"CDTP-10"}),
    "sends type 7": ([[release(7, 1, "D.x"), b"x"]], {"CDTP-13"}),
    "sends a number below 0": ([[release(DAT, -1, "D.x"), b"x"]], {"CDTP-13"}),
    "sends a record of two": (
        [
            [
                batch(BOR),
            ],
            [batch(DAT, [1, {}])],
        ],
        {"CDTP-22"},
    ),
    "sends a block of text": ([[batch(BOR)], [batch(DAT, [1, {}, ["x"]])]], {"CDTP-22"}),
    "sends a number twice": ([[release(BOR, 0), b"\x80"], *[[release(DAT, 1), b"x"]] * 2], {"CDTP-21"}),
    "begins a run within another": ([[release(BOR, 0), b"\x80"], [release(BOR, 0), b"\x80"]], {"CDTP-21"}),
}


class Sender:
    """A sender that says all it has to a receiver, once."""

    FAULTS: ClassVar = {fault: broken for fault, (_, broken) in WRONG.items()}

    def __init__(self, fault=None, messages=GOOD):
        self._messages = [*messages, *(WRONG[fault][0] if fault is not None else ())]
        self._stops = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.linger = 0
        self._socket.bind("tcp://127.0.0.1:*")
        self.subject = Subject(self._socket.last_endpoint.decode())

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self):
        for frames in self._messages:
            while not self._stops.is_set() and not self._socket.poll(20, zmq.POLLOUT):
                pass
            if not self._stops.is_set():
                self._socket.send_multipart(frames)
        self._stops.wait()
        self._socket.close(linger=0)
        self._context.term()

    def __exit__(self, *_):
        self._stops.set()
        self._thread.join(20)
