"""The largest message and the most peers, over our own transport and over libzmq: `python -m benches.extremes [--fast]`.

One message goes to a receiver from a bare PUSH, and from a sender to a bare PULL, and is compared byte by byte. A broker has
many bare peers, or connections that never say a word, and answers a client meanwhile: what that one waits, and the memory
of the broker for each of the others.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import statistics
import time
from typing import Any

import zmq

from benches.endurance import GREETING, READY
from benches.harness import bare, listening
from benches.measure import machine, save
from benches.processes import PATIENCE_S
from trunkline import Curve, cdtp

TRANSPORTS = ("zmtp", "libzmq")
ANY = "tcp://127.0.0.1:*"
HEAD = [b"", b"DGBX\x01"]
MIB = 1 << 20
HEADER = b"\xa5CDTP\x01\xa1D\xd6\xff\x65\x53\xf1\x00\x80"


def huge(transport: str, size: int, *, is_curve: bool) -> tuple[float, float]:
    """Seconds to a receiver and from a sender; what comes has to be what went."""
    data = os.urandom(MIB) * (size // MIB)
    server, client = zmq.curve_keypair(), zmq.curve_keypair()
    keys = (
        {"curve_publickey": client[0], "curve_secretkey": client[1], "curve_serverkey": server[0]} if is_curve else {}
    )
    ours = {"transport": transport, "max_message_bytes": 2 * size, "curve": Curve(server) if is_curve else None}
    with cdtp.Receiver(bind=ANY, **ours) as receiver, bare(zmq.PUSH, receiver.endpoints[0], keys) as push:
        began = time.perf_counter()
        push.send_multipart([HEADER, data], copy=False)
        [came] = receiver.receive(timeout_s=PATIENCE_S).payload
        received = time.perf_counter() - began
        assert came == data
    with (
        cdtp.Sender("D", bind=ANY, linger_s=PATIENCE_S, **ours) as sender,
        bare(zmq.PULL, sender.endpoints[0], keys) as pull,
    ):
        began = time.perf_counter()
        sender.send(data)
        frame = pull.recv_multipart(copy=False)[1]
        sent = time.perf_counter() - began
        assert frame.buffer == data
    return received, sent


def asked_us(client: Any, worker: Any) -> float:
    """One request and its reply."""
    began = time.perf_counter()
    client.send_multipart([*HEAD, b"\x04", b"echo", b"", b"", b"hello"])
    while (request := worker.recv_multipart())[2] != b"\x04":
        pass
    worker.send_multipart([*HEAD, b"\x05", request[4], b"", b"", b"HELLO"])
    while client.recv_multipart()[2] != b"\x05":
        pass
    return (time.perf_counter() - began) * 1e6


def many(transport: str, count: int, *, are_silent: bool, requests: int) -> dict[str, float]:
    """A broker without and with its many peers."""
    with contextlib.ExitStack() as peers, listening("dcp", "broker", "--transport", transport) as broker:
        waits, memory = [], []
        for _ in range(2):
            # A worker that is silent while the others connect would be considered gone.
            with bare(zmq.DEALER, broker.endpoint) as worker, bare(zmq.DEALER, broker.endpoint) as client:
                worker.send_multipart([*HEAD, b"\x01", b"echo"])
                waits.append(statistics.quantiles((asked_us(client, worker) for _ in range(requests)), n=100))
            memory.append(broker.rss_mib)
            if len(memory) == 1:
                _crowd(peers, broker.endpoint, count, are_silent=are_silent)
                broker.until(lambda stats: are_silent or stats["peers"] >= count)
    (p50, p99), (crowded_p50, crowded_p99) = ((each[49], each[98]) for each in waits)
    own = {"p50_us": p50, "p99_us": p99, "crowded_p50_us": crowded_p50, "crowded_p99_us": crowded_p99}
    return {**own, "peer_kib": (memory[1] - memory[0]) * 1024 / count}


def _crowd(peers: contextlib.ExitStack, endpoint: str, count: int, *, are_silent: bool) -> None:
    """Connects, by hand: a socket of libzmq takes two descriptors."""
    host, port = endpoint.removeprefix("tcp://").split(":")
    for _ in range(count):
        peer = peers.enter_context(socket.create_connection((host, int(port))))
        if not are_silent:
            peer.sendall(GREETING + READY)


def main(size: int, counts: list[int], requests: int, *, is_kept: bool) -> None:
    """Measures all of it, and writes a table of each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    head, _, method = (__doc__ or "").partition("\n\n")
    lines = ["# " + head.partition(":")[0], "", machine(), "", method.strip(), ""]
    lines += ["| message | security | transport | to a receiver | from a sender |", "|---|---|---|---|---|"]
    data: dict[str, Any] = {"machine": machine(), "huge": [], "many": []}
    for each, is_curve in ((size, False), (size // 4, True)):
        for transport in TRANSPORTS:
            received, sent = huge(transport, each, is_curve=is_curve)
            row = {"mib": each // MIB, "security": "CURVE" if is_curve else "NULL", "transport": transport}
            data["huge"].append({**row, "received_s": received, "sent_s": sent})
            lines.append(f"| {each // MIB:,} MiB | {row['security']} | {transport} | {received:.2f} s | {sent:.2f} s |")
    lines += [
        "",
        "| peers | transport | KiB a peer | p50, p99 of a request without them, µs | with them |",
        "|---|---|---|---|---|",
    ]
    crowds = [(count, False) for count in counts] + [(counts[-1], True)]
    for count, are_silent in crowds:
        for transport in TRANSPORTS:
            row = many(transport, count, are_silent=are_silent, requests=requests)
            data["many"].append({"peers": count, "silent": are_silent, "transport": transport, **row})
            who = f"{count:,} {'silent connections' if are_silent else 'DEALERs'}"
            lines.append(
                f"| {who} | {transport} | {row['peer_kib']:.1f} | {row['p50_us']:.0f}, {row['p99_us']:.0f} "
                f"| {row['crowded_p50_us']:.0f}, {row['crowded_p99_us']:.0f} |"
            )
    if is_kept:
        save("extremes", lines, data)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true")
    if parser.parse_args().fast:
        main(4 * MIB, [50], 100, is_kept=False)
    else:
        main(1 << 30, [1_000, 10_000], 5_000, is_kept=True)
