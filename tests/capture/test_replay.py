"""Captures sent again, to raw PULL sockets."""

import pytest
import zmq

from peers import cdtp as wire
from peers.waiting import until
from trunkline import capture
from trunkline.errors import LocalProtocolError, TimeoutError

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def recorded(record, tmp_path):
    record([[wire.header_b(number), b"x"] for number in range(3)]).close()
    return tmp_path


def test_sends_what_was_received(recorded, open_socket):
    pull = open_socket(zmq.PULL, bind=ANY)
    assert capture.replay(recorded, connect=pull.last_endpoint.decode(), rate=1000) == 3
    assert [pull.recv_multipart()[0] for _ in range(3)] == [wire.header_b(number) for number in range(3)]


@pytest.mark.parametrize("rate", ["fast", "", 0, -1, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused_before_anybody_is_waited_for(recorded, rate):
    with pytest.raises(LocalProtocolError, match="'max', 'real' or a number of messages a second"):
        capture.replay(recorded, bind=ANY, rate=rate)


def test_a_replay_that_is_broken_off_does_not_linger(recorded, caplog):
    with pytest.raises(TimeoutError, match="accepted nothing"):
        capture.replay(recorded, bind=ANY, timeout_s=0.1, linger_s=1000)
    until(lambda: "replay: 3 of 3 messages were not sent" in caplog.messages)


def test_a_replay_that_is_broken_off_counts_what_it_has_not_come_to(recorded, open_socket, caplog):
    pull = open_socket(zmq.PULL, bind=ANY)

    def interrupt(sent):
        if sent:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        # One message an hour: the others wait on disk.
        capture.replay(recorded, connect=pull.last_endpoint.decode(), rate=1 / 3600, on_progress=interrupt)
    until(lambda: "replay: 2 of 3 messages were not sent" in caplog.messages)
