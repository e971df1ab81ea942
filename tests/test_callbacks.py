"""What users give to be called in threads of ours: whatever it raises is logged, and the thread serves the next."""

import logging
import sys
import threading

import pytest
import zmq

from peers.waiting import until
from trunkline import Curve, cdtp, dcp, mc0, mtl
from trunkline.errors import RemoteProtocolError

ANY = "tcp://127.0.0.1:*"
SERVER = zmq.curve_keypair()
MESSAGE = [b"\xa5CDTP\x01\xa1D\xd6\xff\x65\x53\xf1\x00\x80", b"payload"]

# More than there are threads to ask in.
MANY = 6


def leave(*_):
    sys.exit(1)


def interrupt(*_):
    raise KeyboardInterrupt


fatal = pytest.mark.parametrize("fatal", [leave, interrupt])


@fatal
def test_a_callback_of_a_future_is_outlived_by_the_others(fatal, caplog):
    called = []
    with mc0.Middleware(bind=ANY) as bus, mc0.Connector(connect=bus.endpoints) as connector:
        bad = connector.submit("alarms", b"1")
        bad.add_done_callback(fatal)
        bad.add_done_callback(called.append)
        good = connector.submit("alarms", b"2")
        good.result(20)
        assert called == [bad]
    with dcp.Broker(bind=ANY) as broker, dcp.Client(connect=broker.endpoints) as client:
        for _ in range(2):
            # No worker takes it in time.
            future = client.submit(b"nobody", b"1", timeout_s=0.5)
            future.add_done_callback(fatal)
            assert isinstance(future.exception(20), TimeoutError)
    until(lambda: "exception calling callback" in caplog.text)


def test_a_callback_that_is_called_at_once_may_end_its_own_thread():
    with mc0.Middleware(bind=ANY) as bus, mc0.Connector(connect=bus.endpoints) as connector:
        future = connector.submit("alarms", b"1")
        future.result(20)
        with pytest.raises(SystemExit):
            future.add_done_callback(leave)


@fatal
def test_drops_are_told_after_one_whose_telling_failed(fatal, open_socket, caplog):
    drops = []
    with mc0.Middleware(bind=ANY, on_drop=fatal) as one, mc0.Middleware(bind=ANY, on_drop=drops.append) as other:
        for bus in (one, one, other):
            open_socket(zmq.DEALER, connect=bus.endpoints[0]).send_multipart([b"", b"bad"])
            if bus is one:
                until(lambda: "on_drop raised" in caplog.text)
                caplog.clear()
        until(lambda: drops)


def test_a_log_that_fails_is_no_end_of_what_is_told(open_socket, caplog):
    drops = []

    def fail(_record):
        raise ZeroDivisionError

    logger = logging.getLogger("trunkline.mc0")
    with mc0.Middleware(bind=ANY, on_drop=drops.append) as bus:
        logger.addFilter(fail)
        try:
            open_socket(zmq.DEALER, connect=bus.endpoints[0]).send_multipart([b"", b"bad"])
            until(lambda: drops)
        finally:
            logger.removeFilter(fail)
        open_socket(zmq.DEALER, connect=bus.endpoints[0]).send_multipart([b"", b"bad"])
        until(lambda: len(drops) == 2)
    logger.warning("still here")
    assert "still here" in caplog.text


@fatal
def test_a_command_whose_handler_ends_is_answered_as_one_that_failed(fatal, caplog):
    own = mtl.Profile("own", commands={"Own.End": fatal})
    with (
        mtl.Server(bind=ANY, anonymous=True, profiles=["queue", own]) as server,
        mtl.Client(connect=server.endpoints, profile="own") as client,
    ):
        for _ in range(MANY):
            with pytest.raises(RemoteProtocolError, match="500"):
                client.command("Own.End", timeout_s=20)
    until(lambda: "the handler of Own.End raised" in caplog.text)


@fatal
def test_a_worker_whose_on_error_ends_answers_all_the_same(fatal, caplog):
    def handler(request):
        if bytes(request.data[0]) == b"bad":
            raise ZeroDivisionError
        return request.data

    with (
        dcp.Broker(bind=ANY) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        serving = threading.Thread(target=worker.serve, args=(handler,), kwargs={"on_error": lambda *_: fatal()})
        serving.start()
        try:
            assert not client.request(b"echo", b"bad", timeout_s=20).data
            assert bytes(client.request(b"echo", b"good", timeout_s=20).data[0]) == b"good"
        finally:
            worker.stop(drain_s=20)
            serving.join()
    until(lambda: "on_error failed" in caplog.text)


def name_of_no_text(*_):
    return "\ud800"


@pytest.mark.parametrize("fatal", [leave, interrupt, name_of_no_text])
def test_who_cannot_be_decided_on_is_refused_and_the_next_is_asked_about(fatal, open_socket, caplog):
    strangers = [zmq.curve_keypair() for _ in range(MANY)]
    friend = zmq.curve_keypair()

    def allow(key, address):
        return key == friend[0] or fatal(key, address)

    with cdtp.Receiver(bind=ANY, curve=Curve(SERVER, allow=allow)) as receiver:
        for public, secret in [*strangers, friend]:
            keys = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": SERVER[0]}
            push = open_socket(zmq.PUSH, connect=receiver.endpoints[0], **keys)
            push.send_multipart([MESSAGE[0], b"friend" if public == friend[0] else b"stranger"])
        assert receiver.receive(timeout_s=20).payload == (b"friend",)
        until(lambda: receiver.stats.refused >= MANY)
    until(lambda: "allow= raised" in caplog.text)
