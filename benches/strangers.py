"""What strangers can do to roles and captures: `python -m benches.strangers [--seconds N]`.

Commands run in processes of their own, each with few files to open, and are looked at from outside; a friend is served all the while.
Each attack takes its share of the time, again and again; those of `benches.strangers_known` have bounds that they must not reach.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import msgpack
import zmq

from benches import strangers_known
from benches.harness import certificates
from benches.measure import machine, save
from benches.processes import PATIENCE_S, RoleProcess
from benches.strangers_targets import ANY, FILES, Seen, address, dialled, running, started
from trunkline import capture
from trunkline.errors import CaptureError

HEAD = [b"", b"DGBX\x01"]


def header(name: str = "friend") -> bytes:
    """A header of CDTP."""
    return b"\xa5CDTP\x01" + msgpack.packb(name) + msgpack.packb(msgpack.Timestamp(1, 0)) + b"\x80"


def asks(seen: Seen, friends: tuple[Any, Any], count: int) -> None:
    """A friend asks a service of a friend, by way of a broker."""
    worker, client = friends
    for _ in range(count):
        began = time.monotonic()
        try:
            client.send_multipart([*HEAD, b"\x04", b"echo", b"", b"", b"hello"])
            frames = worker.recv_multipart()
            while frames[2] != b"\x04":
                frames = worker.recv_multipart()
            worker.send_multipart([*HEAD, b"\x05", frames[4], b"", b"", b"HELLO"])
            while client.recv_multipart()[2] != b"\x05":
                pass
        except zmq.Again:
            seen.wrong.append("a friend had no answer")
            return
        seen.worst_ms = max(seen.worst_ms, (time.monotonic() - began) * 1000)


@contextlib.contextmanager
def served(seen: Seen) -> Iterator[tuple[RoleProcess, tuple[Any, Any]]]:
    """A broker with two friends."""
    with running(seen, "dcp", "broker", "--bind", ANY) as broker:
        worker, client = dialled(broker, zmq.DEALER), dialled(broker, zmq.DEALER)
        worker.send_multipart([*HEAD, b"\x01", b"echo"])
        worker.recv_multipart()
        try:
            yield broker, (worker, client)
        finally:
            worker.close()
            client.close()


def silence(seen: Seen, end: float) -> None:
    """Connections that say nothing, at a recorder with an allow-list and a broker."""
    held: list[socket.socket] = []
    with served(seen) as (broker, friends), tempfile.TemporaryDirectory() as folder:
        keys = certificates(folder)
        recording = [*keys.options, "--segment-seconds", "1", "--bind", ANY, "--capture", f"{folder}/capture"]
        with running(seen, "cdtp", "record", *recording) as recorder:
            friend = dialled(recorder, zmq.PUSH, **keys.bare)
            while time.monotonic() < end:
                for role in (broker, recorder):
                    for _ in range(200):
                        with contextlib.suppress(OSError):
                            held.append(socket.create_connection(address(role), timeout=1))
                            seen.add(connections=1)
                if not recorder.alive or not broker.alive:
                    break
                asks(seen, friends, 10)
                friend.send_multipart([header(), b"payload"])
                for stranger in held[: max(0, len(held) - 2500)]:
                    stranger.close()
                del held[: max(0, len(held) - 2500)]
            friend.close()
        for stranger in held:
            stranger.close()


def names(seen: Seen, end: float) -> None:
    """Names of a megabyte, at a receiver."""
    with running(seen, "cdtp", "receive", "--bind", ANY, "--idle", "3600") as receiver:
        push = dialled(receiver, zmq.PUSH)
        while time.monotonic() < end:
            push.send_multipart([header(f"{random.getrandbits(64):x}" + "x" * 1_000_000), b""])
            seen.add(names=1)
            seen.rss_mib = max(seen.rss_mib, receiver.rss_mib)
        push.close()


def rubbish(seen: Seen, end: float) -> None:
    """Frames of anything, empty ones by thousands, and forged addresses, at a broker."""
    with served(seen) as (broker, friends):
        stranger = dialled(broker, zmq.DEALER, sndtimeo=1000)
        while time.monotonic() < end:
            for _ in range(1000):
                frames = [random.randbytes(random.randrange(64)) for _ in range(random.randrange(1, 9))]
                if random.random() < 0.5:
                    frames[:0] = [*HEAD, bytes([random.randrange(7)])]
                with contextlib.suppress(zmq.Again):
                    stranger.send_multipart(frames)
            seen.add(messages=1000)
            with contextlib.suppress(zmq.Again):
                stranger.send_multipart([b""] * 10_000)
                stranger.send_multipart([*HEAD, b"\x05", os.urandom(5), b"", b"", b"forged"])
            asks(seen, friends, 10)
        stranger.close()


def storms(seen: Seen, end: float) -> None:
    """Friends that come and go without a pause, at a broker."""
    with served(seen) as (broker, friends):
        while time.monotonic() < end:
            crowd = [dialled(broker, zmq.DEALER) for _ in range(50)]
            for one in crowd:
                one.send_multipart([*HEAD, b"\x04", b"nobody", b"", b"", b"x"])
            asks(seen, friends, 5)
            for one in crowd:
                one.close()
            seen.add(connections=50)


def freezes(seen: Seen, end: float) -> None:
    """SIGSTOP and SIGCONT of a broker; who waits meanwhile is answered after."""
    with served(seen) as (broker, friends):
        while time.monotonic() < end:
            broker.signal(signal.SIGSTOP)
            time.sleep(random.uniform(0, 1.0))
            broker.signal(signal.SIGCONT)
            seen.add(freezes=1)
            asks(seen, friends, 5)


def offers(seen: Seen, end: float) -> None:
    """Offers that are made up, at a receiver that follows a group."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.bind(("127.0.0.1", 0))
        group = md5(b"soak", usedforsecurity=False).digest()
        with running(seen, "cdtp", "receive", "--group", "soak", "--idle", "3600") as receiver:
            while time.monotonic() < end:
                for _ in range(100):
                    host = os.urandom(16)
                    out.sendto(struct.pack("!6sB16s16sBH", b"CHIRP\x01", 2, group, host, 4, 9), ("127.0.0.1", 7123))
                seen.add(offers=100)
                if receiver.files > FILES / 2:
                    seen.wrong.append(f"{receiver.files} files are open")
                    break
                time.sleep(0.05)


def kills(seen: Seen, end: float) -> None:
    """SIGKILL of a recorder under load; every row that was durable is there, once, and the capture is whole."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "capture"
        rows = 0
        while time.monotonic() < end:
            role = started("cdtp", "record", "--bind", ANY, "--capture", str(directory), "--segment-bytes", "200000")
            push = dialled(role, zmq.PUSH)
            until = time.monotonic() + random.uniform(0.2, 3.0)
            while time.monotonic() < until:
                for _ in range(200):
                    push.send_multipart([header(), os.urandom(50)])
                seen.add(messages=200)
            role.signal(signal.SIGKILL)
            role.end()
            push.close()
            seen.add(kills=1)
            durable = rows + role.stats.get("durable", 0)
            if random.random() < 0.5:
                capture.recover(directory)
            checked = subprocess.run(
                [sys.executable, "-m", "trunkline", "capture", "verify", str(directory)],
                capture_output=True,
                text=True,
                check=False,
            )
            if checked.returncode:
                seen.wrong.append(f"verify: {checked.stdout.strip() or checked.stderr.strip()}")
                return
            rows = capture.open(directory).info().messages
            if rows < durable:
                seen.wrong.append(f"{rows} rows of {durable} that were durable")


def full_disks(seen: Seen, end: float) -> None:
    """A disk that is full in the middle of a segment, and has room again."""
    with tempfile.TemporaryDirectory() as folder:
        disk = Path(folder) / "disk"
        disk.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "none", disk], check=False, capture_output=True
        ).returncode:
            seen.add(skipped_for_want_of_rights=1)
            return
        try:
            while time.monotonic() < end:
                role = started(
                    "cdtp", "record", "--bind", ANY, "--capture", str(disk / "capture"), "--segment-bytes", "500000"
                )
                push = dialled(role, zmq.PUSH, sndtimeo=100)
                until = time.monotonic() + PATIENCE_S
                while role.alive and time.monotonic() < until:
                    with contextlib.suppress(zmq.Again):
                        push.send_multipart([header(), os.urandom(1000)])
                push.close()
                if role.end() != 1:
                    seen.wrong.append("a full disk did not end the recorder with 1")
                seen.add(full_disks=1)
                with contextlib.suppress(CaptureError):
                    capture.recover(disk / "capture")
                seen.add(rows=capture.open(disk / "capture").info().messages)
                shutil.rmtree(disk / "capture")
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)


ATTACKS: dict[str, Callable[[Seen, float], None]] = {
    "connections that say nothing": silence,
    "names of a megabyte": names,
    "rubbish, and forged addresses": rubbish,
    "friends that come and go": storms,
    "a broker that is frozen now and again": freezes,
    "offers that are made up": offers,
    "recorders that are killed": kills,
    "disks that are full": full_disks,
    **strangers_known.ATTACKS,
}

ROUND_S = 60.0


def main(*, seconds: float) -> int:
    """Runs all of it, and writes what came out."""
    seen = {name: Seen() for name in ATTACKS}
    end = time.monotonic() + seconds
    share = min(ROUND_S, seconds / len(ATTACKS))
    while time.monotonic() < end:
        for name, attack in ATTACKS.items():
            seen[name].rounds += 1
            attack(seen[name], time.monotonic() + share)
            print(name, seen[name], flush=True)
    rows = [
        f"| {name} | {one.rounds} | {', '.join(f'{count:,} {what}' for what, count in one.done.items())} "
        f"| {one.worst_ms:.0f} ms | {one.rss_mib:.0f} MiB | {'; '.join(one.wrong) or 'as it has to be'} |"
        for name, one in seen.items()
    ]
    lines = [
        "# What strangers can do",
        "",
        machine(),
        "",
        f"{(__doc__ or '').partition(chr(10) * 2)[2].strip()} {seconds / 60:.0f} minutes, {FILES} files a process.",
        "",
        "| attack | rounds | how much | a friend waited at most | memory at most | seen |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    save("soak", lines, {"seconds": seconds, **{name: vars(one) for name, one in seen.items()}})
    return any(one.wrong for one in seen.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600.0)
    sys.exit(main(seconds=parser.parse_args().seconds))
