"""Receiving and recording beside bare loops on the same stream: `python -m benches.cdtp.live [--fast]`."""

from __future__ import annotations

import argparse
import functools
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgpack
import zmq

from benches.endurance import GREETING
from benches.measure import Case, environment, machine, native, sending, write
from trunkline import cdtp
from trunkline.options import Transport

PAYLOAD = 100
# Copies decide what these cost.
LARGE = 4096
TRANSPORTS: tuple[Transport, ...] = ("zmtp", "libzmq")


# The cheapest sender, with which the receiver is the limit.
POURED = "pour"


def bare(count: int, *, decode: bool, sender: str = "send") -> tuple[float, float]:
    """A loop of pyzmq's `recv_multipart`; with msgpack on every header."""
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        with sending(f"tcp://127.0.0.1:{port}", count, PAYLOAD, sender):
            pull.recv_multipart()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(count - 1):
                frames = pull.recv_multipart()
                if decode:
                    msgpack.unpackb(b"\x94" + frames[0])
            return time.perf_counter() - wall, time.process_time() - cpu


def receiver(count: int, transport: Transport, sender: str = "send") -> tuple[float, float]:
    """`for message in Receiver`; every header validated."""
    with (
        cdtp.Receiver(bind="tcp://127.0.0.1:*", transport=transport) as receiver,
        sending(receiver.endpoints[0], count, PAYLOAD, sender),
    ):
        messages = iter(receiver)
        next(messages)
        wall, cpu = time.perf_counter(), time.process_time()
        for _, _message in zip(range(count - 1), messages, strict=False):
            pass
        return time.perf_counter() - wall, time.process_time() - cpu


def recorder(count: int, transport: Transport, payload: int = PAYLOAD) -> tuple[float, float]:
    """From the socket to durable Parquet."""
    with tempfile.TemporaryDirectory() as directory:
        with cdtp.Recorder(Path(directory) / "capture", bind="tcp://127.0.0.1:*", transport=transport) as recorder:
            with sending(recorder.endpoints[0], count, payload):
                recorder.wait(count=1)
                wall, cpu = time.perf_counter(), time.process_time()
                recorder.wait(count=count)
                recorder.publish()
                assert recorder.stats.durable == count
                return time.perf_counter() - wall, time.process_time() - cpu


def discarding(count: int, sender: str = "send") -> tuple[float, float]:
    """A TCP socket that reads the bytes and throws them away: what is left of two cores beside the sender, and no receiver passes."""
    ready = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL"
    with socket.create_server(("127.0.0.1", 0)) as server:
        with sending(f"tcp://127.0.0.1:{server.getsockname()[1]}", count, PAYLOAD, sender):
            peer, _ = server.accept()
            with peer:
                peer.sendall(GREETING + ready)
                _exactly(peer, len(GREETING))
                _exactly(peer, _exactly(peer, 2)[1])
                # All messages are as long as the first, of two frames.
                length = sum(2 + len(_exactly(peer, _exactly(peer, 2)[1])) for _ in range(2))
                wall, cpu = time.perf_counter(), time.process_time()
                left, room = length * (count - 1), bytearray(1 << 20)
                while left > 0:
                    left -= peer.recv_into(room)
                return time.perf_counter() - wall, time.process_time() - cpu


def _exactly(peer: socket.socket, count: int) -> bytes:
    return peer.recv(count, socket.MSG_WAITALL)


def native_loop(count: int, sender: str = "send", payload: int = PAYLOAD) -> tuple[float, float]:
    """A native loop that receives and does nothing else."""
    command = [native(), "receive", "tcp://127.0.0.1:*", str(count)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        with sending(endpoint, count, payload, sender):
            wall, cpu = map(float, process.stdout.readline().split())
        return wall, cpu


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    count, rounds = (50_000, 1) if fast else (2_000_000, 5)
    head = machine()
    cases: dict[str, Callable[[int], tuple[float, float]]] = {
        "TCP, reads and throws away": discarding,
        "native loop, receives only": native_loop,
        "pyzmq recv_multipart, decodes nothing": lambda count: bare(count, decode=False),
        "pyzmq recv_multipart + msgpack": lambda count: bare(count, decode=True),
    }
    receivers = {f"for message in Receiver, {transport}": transport for transport in TRANSPORTS}
    recorders = {f"Recorder, socket to durable Parquet, {transport}": transport for transport in TRANSPORTS}
    cases |= {name: functools.partial(receiver, transport=transport) for name, transport in receivers.items()}
    cases |= {name: functools.partial(recorder, transport=transport) for name, transport in recorders.items()}
    poured: dict[str, Callable[[int], tuple[float, float]]] = {
        "pyzmq recv_multipart, poured at": lambda count: bare(count, decode=False, sender=POURED),
        "TCP, reads and throws away, poured at": functools.partial(discarding, sender=POURED),
        "native loop, poured at": functools.partial(native_loop, sender=POURED),
        **{
            f"{name}, poured at": functools.partial(receiver, transport=transport, sender=POURED)
            for name, transport in receivers.items()
        },
    }
    cases |= poured
    large: dict[str, Callable[[int], tuple[float, float]]] = {
        "native loop, 4 KiB": functools.partial(native_loop, payload=LARGE),
        **{
            f"Recorder, 4 KiB, {transport}": functools.partial(recorder, transport=transport, payload=LARGE)
            for transport in TRANSPORTS
        },
    }
    cases |= large
    counts = {name: count // (8 if name in large else 4 if "pyzmq" in name else 1) for name in cases}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            measured[name].append(case(counts[name]))
    done = []
    for name, results in measured.items():
        n = counts[name]
        done.append(Case(name, [n / wall for wall, _ in results], [cpu / n * 1e6 for _, cpu in results]))
    method = (
        f"Messages of a 64-byte header and {PAYLOAD} bytes of payload, from a native libzmq sender over loopback TCP, or poured "
        f"by one that writes to TCP by itself; sender and receiver share the cores. {rounds} rounds of {count:,} messages (pyzmq: a quarter; 4 KiB: an eighth), the cases in turn; medians (min-max)."
    )
    by_name = {case.name: case for case in done}
    receiving = [case for case in done if case.name not in {*recorders, *poured, *large}]
    recording = [by_name["native loop, receives only"], *(by_name[name] for name in recorders)]
    tables = [
        ("Receiving in Python", receiving, "pyzmq recv_multipart, decodes nothing"),
        (
            "Receiving in Python, from the least of senders",
            [by_name[name] for name in poured],
            "pyzmq recv_multipart, poured at",
        ),
        ("Recording", recording, "native loop, receives only"),
        ("Recording 4096 bytes of payload", [by_name[name] for name in large], "native loop, 4 KiB"),
    ]
    if fast:
        assert all(case.rate > 0 for case in done)
    else:
        write("cdtp", "CDTP: receiving and recording", method, tables, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
