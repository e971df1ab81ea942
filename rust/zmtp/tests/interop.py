"""The other side of interop.rs: sockets of libzmq that do what each line of the standard input says."""

import sys

import zmq
from zmq.utils import z85

WAIT_MS = 20_000


def messages(sizes: list[int]) -> list[list[bytes]]:
    """Messages of these sizes, and one of many frames."""
    bodies = [[b"", bytes([number % 251]) * size] for number, size in enumerate(sizes)]
    return [*bodies, [b"", *([b"x"] * 1000)]]


def main() -> None:
    client_secret, server_secret, server_public = (bytes.fromhex(key) for key in sys.argv[1:])
    context = zmq.Context()
    for line in sys.stdin:
        kind, what, where, security, *sizes = line.split()
        socket = context.socket(getattr(zmq, kind))
        socket.linger, socket.rcvtimeo, socket.sndtimeo, socket.maxmsgsize = WAIT_MS, WAIT_MS, WAIT_MS, 32 << 20
        socket.heartbeat_ivl, socket.heartbeat_timeout, socket.heartbeat_ttl = 20, 10_000, 10_000
        is_bound = where == "bind"
        if security == "curve" and is_bound:
            socket.curve_server, socket.curve_secretkey = True, server_secret
        elif security != "null":
            secret = client_secret if security == "curve" else server_secret
            socket.curve_secretkey, socket.curve_publickey = secret, zmq.curve_public(z85.encode(secret))
            socket.curve_serverkey = server_public
        if is_bound:
            print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
        else:
            monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            monitor.rcvtimeo = WAIT_MS
            socket.connect(f"tcp://127.0.0.1:{where}")
        for message in messages([int(size) for size in sizes]):
            if what == "refused":
                monitor.recv_multipart()
                break
            if what == "echo":
                socket.send_multipart(socket.recv_multipart())
                continue
            message = message[1:] if kind == "REQ" else message
            if what in {"ask", "send"}:
                socket.send_multipart(message)
            if what in {"ask", "receive"} and socket.recv_multipart() != message:
                raise SystemExit(f"{line}: something else came back")
        print("done", flush=True)
        # Who closes with something unread takes back what it wrote last.
        sys.stdin.readline()
        if not is_bound:
            socket.disable_monitor()
        socket.close()


main()
