"""The file that our export is held against is that of a live H5DataWriter."""

import threading
import uuid
from contextlib import ExitStack

import pytest
import zmq
from satellite import PATIENCE_S, PEERS, Satellite

from peers import chirp, hdf5
from peers.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("constellation")]


def test_a_live_writer_writes_what_our_export_is_held_against(tmp_path):
    assert (PEERS / "1.0.2").is_dir(), "the released peers are missing: run `make peers`"
    group = f"trunkline-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        peer = stack.enter_context(_Offers(group))
        context = stack.enter_context(zmq.Context())
        sockets = {}
        for name in hdf5.MESSAGES:
            sockets[name] = stack.enter_context(context.socket(zmq.PUSH))
            sockets[name].setsockopt(zmq.SNDTIMEO, int(PATIENCE_S * 1000))
            peer.ports[name] = sockets[name].bind_to_random_port("tcp://127.0.0.1")
        writer = Satellite("1.0.2", ["SatelliteH5DataWriter"], "writer", group, tmp_path / "writer.log")
        stack.callback(writer.close)
        # The layout of ours is that in which others read while it is written.
        receive_from = {"receive_from": list(hdf5.MESSAGES)}
        writer.launch({"output_directory": str(tmp_path), "allow_concurrent_reading": True, "_data": receive_from})
        writer.do("start", "run_1", state="RUN")
        for name, messages in hdf5.MESSAGES.items():
            for frames in messages:
                sockets[name].send_multipart(frames)
        # It waits for the EOR only of senders with a BOR.
        until(lambda: all(writer.says(f"Received EOR from {name}") for name in hdf5.MESSAGES))
        writer.do("stop", state="ORBIT")
    assert hdf5.described(tmp_path / "data_run_1.h5") == hdf5.golden()


class _Offers:
    """Offers data at ports by CHIRP, again and again, for peers that start later too."""

    def __init__(self, group):
        self.ports = {}
        self._group = group
        self._peer = chirp.Peer(7123)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._offer)

    def _offer(self):
        while not self._done.wait(0.1):
            for name, port in dict(self.ports).items():
                self._peer.offer(name.lower(), port, group=self._group)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        self._peer.close()
