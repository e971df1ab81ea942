"""Errors about an argument name it and say what it takes."""

import asyncio
import datetime as dt
import inspect
import re
import traceback
from decimal import Decimal

import numpy as np
import pytest
import zmq

import trunkline
from peers.roles import KINDS, opened
from trunkline import capture, cdt, cdtp, chirp, columns, dcp, mc0, msgpack, mtl, spark
from trunkline.errors import ClosedError, LocalProtocolError

WHERE = "tcp://127.0.0.1:*"
THERE = "tcp://127.0.0.1:9"
ERRORS = (TypeError, ValueError, OverflowError, LocalProtocolError)

NUMBER = "takes a whole number"
SECONDS = "takes a number of seconds"
FLAG = "takes True or False, not"
BELOW = "must be at least"
PAST = "must be a number of seconds, 0 or more, not"
PATH = "takes a path, as a str or pathlib.Path, not"
FUNCTION = "takes a function or None, not"
TEXT = "takes a str"

# What every role takes but a Beacon, then what is a role's own: the argument, what is wrong, the words that say so.
SHARED = [
    ("queue_messages", "many", NUMBER),
    ("queue_messages", None, NUMBER),
    ("queue_messages", 1.5, NUMBER),
    ("queue_messages", 0, "must be at least 1, not 0"),
    ("queue_bytes", -1, "must be at least 1, not -1"),
    ("queue_bytes", "1 MiB", NUMBER),
    ("queue_bytes", 1 << 70, "must be less than 2**63"),
    ("outbox_bytes", 0, "must be at least 1"),
    ("max_message_bytes", -1, "must be at least 0"),
    ("max_message_bytes", None, NUMBER),
    ("max_message_bytes", 1 << 63, "must be less than 2**63"),
    ("raise_file_limit", "no", FLAG),
    ("capture_private", "yes", FLAG),
    ("options", [1], "takes a mapping of socket options"),
    ("options", {"LINGER": 1}, NUMBER),
    ("options", {zmq.TCP_KEEPALIVE: None}, f"[{int(zmq.TCP_KEEPALIVE)}] {NUMBER}"),
    ("socket", "tcp://127.0.0.1:9", "takes a zmq.Socket, not str"),
    ("context", 1, "takes a zmq.Context, not int"),
    ("curve", b"key", "takes a trunkline.Curve, not bytes"),
]
ENDPOINTS = [
    (5555, "takes a str, or a sequence of them, not int"),
    (b"tcp://127.0.0.1:9", "takes a str, or a sequence of them, not bytes"),
    ([None], "takes a str, or a sequence of them, not NoneType"),
    ("127.0.0.1:9", "does not name its transport"),
]
CAPTURE = [
    ("segment_bytes", 0, "must be at least 1"),
    ("segment_bytes", "1 MiB", NUMBER),
    ("segment_s", "60", SECONDS),
    ("segment_s", -1, PAST),
    ("keep_bytes", -1, BELOW),
    ("keep_days", "1", "takes a number of days"),
    ("keep_days", -1, "must be a number of days, 0 or more"),
    ("warn_free_bytes", 0.5, NUMBER),
    ("critical_free_bytes", -1, BELOW),
]
ROLE_CAPTURE = [
    ("capture", 5, PATH),
    ("capture", b"capture", PATH),
    ("capture", "s3://me:secret@lab/run7?region=eu", "s3://lab/run7: is a URL, and this takes paths of this machine"),
    ("capture_overflow", "drop", "must be 'count' or 'block', not 'drop'"),
    ("capture_overflow", None, "must be 'count' or 'block', not None"),
    *CAPTURE,
]
CHIRP = [
    ("group", b"lab", "takes a str, not bytes: decode it"),
    ("chirp", "unicast", "must be 'multicast' or 'broadcast', not 'unicast'"),
    ("chirp_port", -1, "must be at least 0"),
    ("chirp_port", 65536, "must be at most 65535, not 65536"),
    ("chirp_port", "7123", NUMBER),
]
HEARTBEAT = [
    ("heartbeat_interval_s", "2.5", SECONDS),
    ("heartbeat_interval_s", -1, PAST),
    ("heartbeat_interval_s", float("nan"), PAST),
    ("heartbeat_interval_s", 1e-6, "must be at least 0.001"),
    ("liveness", 0, BELOW),
    ("liveness", None, NUMBER),
    ("liveness", 1 << 40, "liveness"),
]
RECEIVING = [
    ("accept", "C", "must be 'S', 'A', 'B' or '2', not 'C'"),
    ("accept", ("S", 2), "must be 'S', 'A', 'B' or '2', not 2"),
    ("accept", 2, "must be 'S', 'A', 'B' or '2', not 2"),
    ("strict", "yes", FLAG),
    ("on_drop", "print", FUNCTION),
    ("limit", -1, BELOW),
    ("limit", "all", "takes a whole number or None"),
]
IN_GROUP = [
    ("senders", 5, "takes a str, or a sequence of them, not int"),
    ("senders", [b"Det"], "takes a str, or a sequence of them, not bytes"),
    *CHIRP,
]
OWN = {
    "cdtp.Sender": [
        ("name", b"Det", "takes a str, not bytes: decode it"),
        ("name", None, TEXT),
        ("header", "C", "must be 'S', 'A', 'B' or '2', not 'C'"),
        ("header", 2, "must be 'S', 'A', 'B' or '2', not 2"),
        ("overflow", "drop", "must be 'block' or 'raise', not 'drop'"),
        ("linger_s", "5", SECONDS),
        ("linger_s", None, SECONDS),
        ("linger_s", -1, PAST),
        ("linger_s", float("inf"), PAST),
        ("batch_bytes", -1, BELOW),
        ("batch_bytes", 0.5, NUMBER),
        ("batch_s", None, SECONDS),
        ("batch_s", -0.1, PAST),
        ("chirp_lower_case", 1, FLAG),
        *CHIRP,
        *ROLE_CAPTURE,
    ],
    "cdtp.Receiver": [*RECEIVING, ("message_limit", -1, BELOW), *IN_GROUP, *ROLE_CAPTURE],
    "cdtp.Recorder": [("path", 5, PATH), ("path", None, PATH), *RECEIVING, *IN_GROUP, *CAPTURE],
    "chirp.Beacon": [
        ("group", None, "takes a str, not NoneType"),
        ("name", b"Det", "takes a str, not bytes: decode it"),
        ("name", 5, "takes a str or None, not int"),
        ("chirp", None, "must be 'multicast' or 'broadcast', not None"),
        ("lower_case", "no", FLAG),
        ("names", [1], "takes a str, or a sequence of them, not int"),
        ("on_drop", 1, FUNCTION),
        ("port", -1, BELOW),
        ("port", 1 << 16, "must be at most 65535"),
        ("port", None, NUMBER),
    ],
    "dcp.Broker": [
        ("max_queue", -1, BELOW),
        ("max_queue", None, NUMBER),
        ("max_queue_bytes", "1", NUMBER),
        ("queue_ttl_s", None, SECONDS),
        ("queue_ttl_s", -1, PAST),
        ("overflow", "block", "must be 'reject-newest' or 'drop-oldest', not 'block'"),
        ("requeue", None, FLAG),
        ("busy_ping_grants", 1, FLAG),
        ("client_address", "none", "must be 'any' or 'workers-only', not 'none'"),
        ("compat_dagbox", "yes", FLAG),
        ("allowed_services", b"echo", "takes a sequence, not bytes: put it in a list"),
        ("allowed_services", ["echo"], "takes bytes, not str: encode it, e.g. 'echo'.encode()"),
        ("allowed_services", 5, "takes a sequence, not int"),
        ("on_drop", 1, FUNCTION),
        *HEARTBEAT,
        *ROLE_CAPTURE,
    ],
    "dcp.Worker": [
        ("service", "echo", "takes bytes, not str: encode it, e.g. 'echo'.encode()"),
        ("service", None, "takes bytes, not NoneType"),
        ("service", [b"echo"], "takes bytes, not list"),
        ("concurrency", 0, BELOW),
        ("concurrency", None, NUMBER),
        ("on_drop", 1, FUNCTION),
        *HEARTBEAT,
        *ROLE_CAPTURE,
    ],
    "dcp.Client": [
        ("overflow", "drop", "must be 'block' or 'raise', not 'drop'"),
        ("on_drop", 1, FUNCTION),
        *HEARTBEAT,
        *ROLE_CAPTURE,
    ],
    "mc0.Middleware": [
        ("policy", 7, "takes a path"),
        ("overflow", "block", "must be 'drop-newest', 'drop-oldest' or 'disconnect', not 'block'"),
        ("client_queue_messages", 0, BELOW),
        ("client_queue_messages", None, NUMBER),
        ("client_queue_bytes", 0, BELOW),
        ("client_queue_bytes", 1.5, NUMBER),
        ("max_ttl", -1, BELOW),
        ("max_ttl", "1 h", NUMBER),
        ("max_topics", -1, BELOW),
        ("on_drop", 1, FUNCTION),
        *ROLE_CAPTURE,
    ],
    "mtl.Server": [
        ("anonymous", 1, FLAG),
        ("users", 7, "users"),
        ("users", {"ada": b"sesame"}, "a mapping of str to str, not bytes"),
        ("virtual_hosts", 5, "takes a str, or a sequence of them, not int"),
        ("resources", [b"jobs"], "takes a str, or a sequence of them, not bytes"),
        ("data_bind", "127.0.0.1:9", "does not name its transport"),
        ("durable", 5, PATH),
        ("max_queue", 0, BELOW),
        ("max_queue_bytes", "1 GiB", NUMBER),
        ("queue_ttl_s", -1, PAST),
        ("max_recycle", -1, BELOW),
        ("ping_interval_s", "2.5", SECONDS),
        ("ping_interval_s", 0, "at least 0.001"),
        ("liveness", 1, BELOW),
        ("session_idle_s", None, SECONDS),
        ("lease_idle_s", -1, PAST),
        ("capture_secrets", "no", FLAG),
        ("on_drop", 1, FUNCTION),
        *ROLE_CAPTURE,
    ],
    "mc0.Connector": [
        ("ttl_ms", "10 s", "takes a whole number or None"),
        ("ttl_ms", 0.5, "takes a whole number or None"),
        ("ttl_ms", -1, BELOW),
        ("leading_delimiter", "no", FLAG),
        ("overflow", "drop", "must be 'block' or 'raise', not 'drop'"),
        ("on_error", 1, FUNCTION),
        ("on_drop", 1, FUNCTION),
        *ROLE_CAPTURE,
    ],
}


def cases():
    for role, own in OWN.items():
        side = "connect" if role in ("dcp.Worker", "dcp.Client", "mc0.Connector") else "bind"
        where = [] if role == "chirp.Beacon" else [(side, value, words) for value, words in ENDPOINTS]
        shared = [] if role == "chirp.Beacon" else SHARED
        for argument, value, words in [*own, *shared, *where]:
            yield pytest.param(role, argument, value, words, id=f"{role}-{argument}-{value!r}"[:60])


@pytest.mark.parametrize(("role", "argument", "value", "words"), list(cases()))
def test_a_role_names_the_argument_it_cannot_take(role, argument, value, words, tmp_path):
    given = {argument: value}
    if argument in ("chirp", "chirp_port", "chirp_lower_case", "senders") and role != "chirp.Beacon":
        given["group"] = "lab"
        if role != "cdtp.Sender":
            given["bind"] = ()
    with pytest.raises(ERRORS, match=re.escape(argument)) as raised:
        opened(role, tmp_path, **given)
    assert words in str(raised.value)
    assert not (tmp_path / "capture").exists()


@pytest.mark.parametrize(
    ("role", "argument"), [(name, argument) for name, role in KINDS.items() for argument in role.parameters]
)
def test_each_role_names_each_argument_that_is_of_no_type_it_takes(role, argument, tmp_path):
    with pytest.raises(ERRORS) as caught:
        opened(role, tmp_path, **{argument: object()})
    assert argument in str(caught.value)


@pytest.mark.parametrize("role", KINDS)
def test_what_a_role_cannot_take_is_all_there_is_to_refuse(role, tmp_path):
    name = KINDS[role].name
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'colour'$") as caught:
        opened(role, tmp_path, colour=1)
    # The caller, what stands for it here, and one frame of the package.
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 3
    name = next(name for name in KINDS[role].parameters if len(name) > 4)
    with pytest.raises(TypeError, match=f"'{name}z': did you mean '{name}'\\?$"):
        opened(role, tmp_path, **{f"{name}z": 1})


@pytest.mark.parametrize("twin", [cdt.AsyncSource, cdt.Source])
def test_what_is_missing_is_told_by_the_name_of_the_class(twin):
    with pytest.raises(TypeError, match=rf"^{twin.__name__}\(\): missing a required argument: 'target'$"):
        twin("name")


@pytest.mark.parametrize("twin", ["", "Async"])
@pytest.mark.parametrize(
    "role",
    ["cdtp.Sender", "cdtp.Receiver", "dcp.Broker", "dcp.Worker", "dcp.Client", "mc0.Connector", "mc0.Middleware"],
)
def test_who_needs_an_endpoint_is_told_how_to_give_one(role, twin):
    positional = {"cdtp.Sender": ["D"], "dcp.Worker": [b"echo"]}.get(role, [])

    kind = KINDS[role].kind if not twin else KINDS[role].twin

    async def use():
        async with kind(*positional):
            pass

    with pytest.raises(LocalProtocolError, match=r"give bind= or connect=, or a socket="):
        asyncio.run(use()) if twin else kind(*positional)


WAITS = {
    "cdtp.Sender": lambda role: role.send(b"x"),
    "cdtp.Receiver": lambda role: role.receive(),
    "cdtp.Recorder": lambda role: role.wait(count=1),
    "chirp.Beacon": lambda role: role.receive(),
    "dcp.Worker": lambda role: role.receive(),
    "dcp.Client": lambda role: role.request(b"echo", b"x"),
    "mc0.Connector": lambda role: role.receive(),
    "cdt.Recorder": lambda role: role.wait(),
    "cdt.Source": lambda role: role.receive(),
}
# What is waited for is their end.
SERVING = {"dcp.Broker", "mc0.Middleware", "mtl.Server", "cdt.Target"}


def test_every_role_is_closed():
    # A client of MTL has to have a server first.
    assert set(WAITS) == set(KINDS) - SERVING - {"mtl.Client"}


@pytest.mark.parametrize("role", WAITS)
def test_a_closed_role_says_which_it_is(role, tmp_path):
    closed = opened(role, tmp_path)
    closed.close()
    with pytest.raises(ClosedError, match=rf"^this {role} is closed$"):
        WAITS[role](closed)


FLUSHES = [(role, name) for role, each in KINDS.items() for name in ("flush", "publish") if hasattr(each.kind, name)]


def test_every_recorder_is_flushed_after_its_end():
    assert {role for role, _ in FLUSHES} >= {"cdtp.Recorder", "cdt.Recorder"}


@pytest.mark.parametrize(("role", "name"), FLUSHES)
@pytest.mark.parametrize("twin", ["", "Async"])
def test_a_closed_role_is_not_flushed(role, name, twin, tmp_path):
    async def flush():
        async with opened(role, tmp_path, twin) as closed:
            pass
        await getattr(closed, name)()

    with pytest.raises(ClosedError, match=rf"^this {role} is closed$"):
        if twin:
            asyncio.run(flush())
        else:
            with opened(role, tmp_path) as closed:
                pass
            getattr(closed, name)()


def test_numbers_may_be_those_of_numpy(tmp_path):
    with cdtp.Sender("Det", bind=WHERE, queue_messages=np.int64(5), linger_s=np.float32(0)) as sender:
        assert sender.stats.queued == 0
    with cdtp.Recorder(tmp_path, bind=WHERE, segment_bytes=np.uint32(1 << 20), segment_s=1):
        pass


FRAME = "takes bytes or another buffer, not"

CALLS = {
    "send text": (lambda at: at.sender.send("text"), "payload", f"{FRAME} str: encode it"),
    "send texts": (lambda at: at.sender.send(["text"]), "payload", f"{FRAME} str: encode it"),
    "send none": (lambda at: at.sender.send(None), "payload", f"{FRAME} NoneType"),
    "send numbers": (lambda at: at.sender.send([1]), "payload", f"{FRAME} int"),
    "send times": (lambda at: at.sender.send(np.zeros(3, "datetime64[ns]")), "payload", "view them as whole numbers"),
    "send a map": (lambda at: at.sender.send({b"k": 1}), "payload", f"{FRAME} dict"),
    "send every second": (lambda at: at.sender.send(np.arange(10)[::2]), "payload", "make a contiguous copy"),
    "send a moment": (
        lambda at: at.sender.send(b"", tags={"t": dt.datetime.now(dt.UTC)}),
        "tags",
        "MessagePack has no datetime: use trunkline.msgpack.Timestamp(seconds, nanoseconds)",
    ),
    "send a set": (
        lambda at: at.sender.send(b"", tags={"t": {1}}),
        "tags",
        "MessagePack has no set: use None, bool",
    ),
    "send a huge number": (lambda at: at.sender.send(b"", tags={"t": 1 << 64}), "tags", "integers have 64 bits"),
    "send an array in a tag": (
        lambda at: at.sender.send(b"", tags={"t": {"in": np.arange(2)}}),
        "tags['t']",
        "MessagePack has no ndarray: use its tolist()",
    ),
    "begin with a decimal": (lambda at: at.runs.begin_run({"t": Decimal("1.1")}), "config['t']", "use float() of it"),
    "send tags by number": (lambda at: at.sender.send(b"", tags={1: 1}), "tags", "takes strings as keys, not 1"),
    "send listed tags": (
        lambda at: at.sender.send(b"", tags=["t"]),
        "tags",
        "takes a mapping of names to values, not list",
    ),
    "send at a float": (
        lambda at: at.sender.send(b"", timestamp_ns=1.5),
        "timestamp_ns",
        "takes nanoseconds since 1970",
    ),
    "send at text": (lambda at: at.sender.send(b"", timestamp_ns="now"), "timestamp_ns", "not str"),
    "send at no time": (
        lambda at: at.sender.send(b"", timestamp_ns=1 << 120),
        "timestamp_ns",
        "out of range for a MessagePack",
    ),
    "send within text": (lambda at: at.sender.send(b"", timeout_s="1"), "timeout_s", "str"),
    "send frames": (
        lambda at: at.sender.send_frames(b"x"),
        "frames",
        "takes a sequence of bytes, not bytes: put it in a list",
    ),
    "configure": (lambda at: at.runs.begin_run({1: 1}), "config", "takes strings as keys"),
    "configure by text": (lambda at: at.runs.begin_run("x"), "config", "takes a mapping of names to values, not str"),
    "request of text": (lambda at: at.client.request("echo", b""), "service", f"{FRAME} str: encode it"),
    "request text": (lambda at: at.client.request(b"echo", "x"), "data", f"{FRAME} str: encode it"),
    "request beside text": (
        lambda at: at.client.request(b"", b"", metadata="x"),
        "metadata",
        f"{FRAME} str: encode it",
    ),
    "request beside nothing": (lambda at: at.client.request(b"", b"", metadata=[b""]), "metadata", "empty part"),
    "request often": (lambda at: at.client.request(b"", b"", retries=-1), "retries", ""),
    "request never": (lambda at: at.client.request(b"", b"", timeout_s=-1), "timeout_s", PAST),
    "put text": (lambda at: at.connector.put("runs", "x"), "body", f"{FRAME} str: encode it"),
    "put to a number": (lambda at: at.connector.put(1, b"x"), "topic", "takes a str or bytes, not int"),
    "put a header": (lambda at: at.connector.put("", b"", headers="X-A"), "headers", "takes a mapping, or a sequence"),
    "put a lone key": (lambda at: at.connector.put("", b"", headers=["X-A"]), "headers", "pairs"),
    "put a reserved header": (
        lambda at: at.connector.submit("", b"", headers={"TTL": "1"}),
        "headers",
        'header "TTL" is reserved: your own headers must begin with X-',
    ),
    "put a number beside": (
        lambda at: at.connector.put("", b"", headers={"X-A": 1}),
        "value",
        "a str or bytes, not int",
    ),
    "subscribe to a list": (lambda at: at.connector.subscribe(["a"]), "topics", "takes a str or bytes, not list"),
    "subscribe never": (lambda at: at.connector.subscribe("a", timeout_s=-1), "timeout_s", PAST),
    "ping within text": (lambda at: at.connector.ping(timeout_s="1"), "timeout_s", "str"),
    "offer text": (lambda at: at.beacon.offer("data", 1), "service", "takes a trunkline.chirp.Service, not str"),
    "offer a port": (lambda at: at.beacon.offer(chirp.Service.DATA, 65536), "port", "must be at most 65535"),
    "ask for text": (lambda at: at.beacon.request("data"), "service", "takes a trunkline.chirp.Service, not str"),
    "decode text": (lambda _: cdtp.decode("x"), "frames", "takes a sequence of bytes, not str: put it in a list"),
    "decode texts": (lambda _: cdtp.decode(["x"]), "frames", f"{FRAME} str: encode it"),
    "decode none": (lambda _: cdtp.decode(None), "frames", f"{FRAME} NoneType"),
    "decode c": (lambda _: cdtp.decode([], accept="C"), "accept", "unknown CDTP header"),
    "decode dcp text": (lambda _: dcp.decode("x"), "frames", "takes a sequence of bytes, not str: put it in a list"),
    "decode for nobody": (lambda _: dcp.decode([], role="queue"), "role", "queue"),
    "decode mc0 text": (lambda _: mc0.decode("x"), "frames", "takes a sequence of bytes, not str: put it in a list"),
    "encode mc0 text": (lambda _: mc0.encode("x"), "message", "str"),
    "build mc0 of text": (lambda _: mc0.Message("SUB", (), ["a"]), "positional", f"{FRAME} str: encode it"),
    "build no mc0": (lambda _: mc0.Message("ASK"), "ASK", "unknown verb"),
    "decode chirp text": (lambda _: chirp.decode("x"), "frames", f"{FRAME} str: encode it"),
    "encode text": (lambda _: cdtp.encode("x"), "message", "takes a Message or a Batch, not str"),
    "encode dcp text": (lambda _: dcp.encode("x"), "message", "str"),
    "build of text": (lambda _: cdtp.Message("Det", "x", timestamp_ns=0), "payload", f"{FRAME} str: encode it"),
    "build dcp of text": (lambda _: dcp.Message("request", service="echo"), "service", f"{FRAME} str: encode it"),
    "build no dcp": (lambda _: dcp.Message("ask"), "type", "ask"),
    "msgpack of text": (lambda _: msgpack.decode("x"), "data", "takes bytes or another buffer, not str"),
    "open none": (lambda _: capture.open(None), "path", PATH),
    "replay none": (lambda _: capture.replay(None, bind=WHERE), "path", PATH),
    "replay fast": (lambda at: capture.replay(at.path, rate="fast", bind=WHERE), "rate", "'max', 'real' or a number"),
    "replay none a second": (
        lambda at: capture.replay(at.path, rate=None, bind=WHERE),
        "rate",
        "'max', 'real' or a number",
    ),
    "replay within text": (lambda at: capture.replay(at.path, timeout_s="1", bind=WHERE), "timeout_s", SECONDS),
    "replay lingering": (lambda at: capture.replay(at.path, linger_s=-1, bind=WHERE), "linger_s", PAST),
    "replay telling": (lambda at: capture.replay(at.path, on_ready=1, bind=WHERE), "on_ready", FUNCTION),
    "columns of what": (lambda _: columns.Decoder("xyz"), "protocol", "xyz"),
    "columns how": (lambda _: columns.Decoder("cdtp", mode="LOOSE"), "mode", "LOOSE"),
    "columns of text": (lambda _: columns.Decoder("cdtp", tags="text"), "tags", "text"),
    "columns of types": (lambda _: columns.Decoder("cdtp", tags={"run": "date"}), "tags", 'unknown type "date"'),
    "columns unknown": (lambda _: columns.Decoder("cdtp", colour=1), "colour", ""),
    "spark none": (lambda _: spark.decode(None, "cdtp"), "df", "takes a Spark DataFrame, not NoneType"),
    "spark what": (lambda _: spark.decode(None, "xyz"), "protocol", "xyz"),
    "spark how": (lambda _: spark.decode(None, "cdtp", mode="LOOSE"), "mode", "LOOSE"),
    "capture messages": (lambda at: capture.open(at.path).messages("xyz"), "protocol", "'xyz'"),
    "capture columns": (lambda at: capture.open(at.path).decode("cdtp", mode="LOOSE"), "mode", "LOOSE"),
    "capture decode what": (lambda at: capture.open(at.path).decode(["cdtp"]), "protocol", TEXT),
    "folder decode what": (lambda at: capture.open_folder(at.folder).decode(["cdtp"]), "protocol", TEXT),
    "capture one column": (lambda at: capture.open(at.path).decode(columns="seq"), "columns", "put it in a list"),
    "capture no columns": (lambda at: capture.open(at.path).decode(columns=[1]), "columns", "takes a str, or a seq"),
    "capture from text": (lambda at: capture.open(at.path).rows(first_seq="5"), "first_seq", NUMBER),
    "capture from none": (lambda at: capture.open(at.path).reader(first_seq=None), "first_seq", NUMBER),
    "capture from half": (lambda at: capture.open(at.path).chosen(first_seq=1.5), "first_seq", NUMBER),
    "capture window": (lambda at: capture.open(at.path).topics("seq > 5"), "window_s", SECONDS),
    "folder window": (lambda at: capture.open_folder(at.folder).topics("seq > 5"), "window_s", SECONDS),
    "capture no window": (lambda at: capture.open(at.path).topics(0), "window_s", "1e-06 or more, not 0"),
    "capture long window": (lambda at: capture.open(at.path).topics(1e9), "window_s", "must be at most 864,000,000"),
    "open no folder": (lambda _: capture.open_folder(5), "path", PATH),
    "verify none": (lambda _: capture.verify(5), "path", PATH),
    "export none": (lambda at: capture.export(5, at.path / "x.csv"), "path", PATH),
    "export to none": (lambda at: capture.export(at.path, 5), "out", "takes a path or an open binary file, not int"),
    "export what": (lambda at: capture.export(at.path, at.path / "x.csv", escape_formulas=1), "escape_formulas", FLAG),
    "export telling": (lambda at: capture.export(at.path, at.path / "x.csv", on_progress=1), "on_progress", FUNCTION),
    "report none": (lambda at: capture.report(5, at.path / "x.html"), "path", PATH),
    "report to none": (lambda at: capture.report(at.path, 5), "out_html", PATH),
    "report telling": (lambda at: capture.report(at.path, at.path / "x.html", on_progress=1), "on_progress", FUNCTION),
    "spark report to none": (lambda at: spark.report(at.path, 5), "out_html", PATH),
    "select a sender": (lambda _: capture.Selection(sender=5), "sender", TEXT),
    "select a type": (lambda _: capture.Selection(type=5), "type", TEXT),
    "select a service": (lambda _: capture.Selection(service=b"echo"), "service", "not bytes: decode it"),
    "select a topic": (lambda _: capture.Selection(topic=5), "topic", TEXT),
    "select a resource": (lambda _: capture.Selection(resource=5), "resource", TEXT),
    "select a condition": (lambda _: capture.Selection(where=True), "where", TEXT),
    "select half a run": (lambda _: capture.Selection(run=1.5), "run", "takes a whole number, a str or None, not"),
    "select a peer": (lambda _: capture.Selection(peer="x"), "peer", "not str: encode it"),
    "select since": (lambda _: capture.Selection(since_ns="5"), "since_ns", NUMBER),
    "select until": (lambda _: capture.Selection(until_ns=1.5), "until_ns", NUMBER),
    "select until later": (lambda _: capture.Selection(until_ns=1 << 63), "until_ns", "must be less than 2**63"),
}

# What takes a selection.
SELECTING = {
    **{
        f"capture {name}": lambda at, given, name=name: getattr(capture.open(at.path), name)(selection=given)
        for name in ("rows", "chosen", "decode", "gaps", "requests", "topics", "contents", "rollout")
    },
    **{
        f"folder {name}": lambda at, given, name=name: getattr(capture.open_folder(at.folder), name)(selection=given)
        for name in ("decode", "gaps", "requests", "topics", "contents", "rollout")
    },
    "export": lambda at, given: capture.export(at.path, at.path / "x.csv", selection=given),
    "export HDF5": lambda at, given: capture.export(at.path, at.path / "x.h5", selection=given),
    "replay": lambda at, given: capture.replay(at.path, bind=WHERE, selection=given),
    "report": lambda at, given: capture.report(at.path, at.path / "x.html", selection=given),
    "spark report": lambda at, given: spark.report(at.path, at.path / "x.html", selection=given),
}


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    class At:
        folder = tmp_path_factory.mktemp("captures")
        path = folder / "capture"

    capture.import_([], At.path)
    with (
        cdtp.Sender("Det", bind=WHERE, linger_s=0) as At.sender,
        cdtp.Sender("Det", header="A", bind=WHERE, linger_s=0) as At.runs,
        dcp.Client(connect=THERE) as At.client,
        mc0.Connector(connect=THERE) as At.connector,
        chirp.Beacon("lab", "Det", port=17124) as At.beacon,
    ):
        yield At


@pytest.mark.parametrize(("call", "argument", "words"), CALLS.values(), ids=CALLS)
def test_a_call_names_the_argument_it_cannot_take(call, argument, words, at):
    with pytest.raises(ERRORS) as raised:
        call(at)
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert argument in said
    assert words in said


@pytest.mark.parametrize("given", ["seq > 5", "", {}, {"where": "seq > 5"}, 5, capture.Selection], ids=str)
@pytest.mark.parametrize("what", SELECTING)
def test_what_is_no_selection_is_refused(what, given, at):
    says = (
        r"^selection takes a capture\.Selection or None, not .*: a condition is a capture\.Selection\(where=\.\.\.\)$"
    )
    with pytest.raises(TypeError, match=says):
        SELECTING[what](at, given)


def test_everything_that_takes_a_selection_is_tried():
    kinds = {"capture": capture.Capture, "folder": capture.Folder}
    found = {
        f"{of} {name}"
        for of, kind in kinds.items()
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and "selection" in inspect.signature(method).parameters
    }
    found |= {name for name in capture.__all__ if "selection" in getattr(getattr(capture, name), "__annotations__", ())}
    assert found >= {"capture rows", "folder decode", "export", "replay", "report"}
    assert found <= set(SELECTING)


BUFFERS = {
    "numbers": np.arange(1000),
    "floats": np.linspace(0, 1, 7, dtype=np.float32),
    "rows": np.arange(12, dtype=">u2").reshape(3, 4),
    "fields": np.zeros(3, dtype=[("Open", "u1"), ("x", "f8")]),
    "signed": np.arange(-3, 3, dtype=np.int8),
    "view": memoryview(np.arange(5)),
    "frame": zmq.Frame(b"frame"),
    "bytearray": bytearray(b"bytes"),
}


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_any_contiguous_buffer_is_a_frame(buffer):
    content = bytes(memoryview(buffer).tobytes())
    assert cdtp.Message("Det", buffer, timestamp_ns=0).payload == (content,)
    assert cdtp.Message("Det", [b"x", buffer], timestamp_ns=0).payload == (b"x", content)
    assert dcp.Message("request", service=b"echo", data=[buffer]).data == (content,)


@pytest.mark.parametrize("buffer", [np.array([None]), np.arange(6).reshape(2, 3).T], ids=["objects", "transposed"])
def test_what_bytes_alone_do_not_say_is_no_frame(buffer):
    with pytest.raises(TypeError, match="payload takes bytes or another buffer, not"):
        cdtp.Message("Det", [buffer], timestamp_ns=0)


def test_arguments_that_contradict_each_other_are_both_named(open_socket, context, tmp_path):
    with pytest.raises(LocalProtocolError, match="socket= has its own context: leave out context="):
        cdtp.Receiver(socket=open_socket(zmq.PULL), context=context)
    with pytest.raises(LocalProtocolError, match="a recorder waits for its disk: leave out capture_overflow="):
        cdtp.Recorder(tmp_path / "capture", bind=WHERE, capture_overflow="count")
    (tmp_path / "certificate").write_text("# its public-key was left out\n")
    with pytest.raises(LocalProtocolError, match="certificate is not a certificate"):
        trunkline.Curve(tmp_path / "certificate")


@pytest.mark.parametrize(
    "seconds", [1e300, 1e19, 2**64, 10**400, float("inf"), float("nan"), -1], ids=lambda seconds: str(seconds)[:9]
)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda **options: cdtp.Receiver(bind="tcp://127.0.0.1:*", **options), "handshake_timeout_s"),
        (lambda **options: cdtp.Receiver(bind="tcp://127.0.0.1:*", **options), "segment_s"),
        (lambda **options: cdtp.Sender("D", bind="tcp://127.0.0.1:*", **options), "linger_s"),
        (lambda **options: dcp.Broker(bind="tcp://127.0.0.1:*", **options), "queue_ttl_s"),
        (lambda **options: dcp.Client(connect="tcp://127.0.0.1:1", **options), "heartbeat_interval_s"),
        (lambda **options: mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, **options), "session_idle_s"),
    ],
)
def test_a_duration_that_is_none_is_an_ordinary_error(make, name, seconds):
    with pytest.raises(ValueError, match=name):
        make(**{name: seconds})


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1])
async def test_asyncio_refuses_a_timeout_that_is_none_as_blocking_does(seconds):
    async with cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*") as receiver:
        with pytest.raises(ValueError, match="timeout_s must be a number of seconds, 0 or more"):
            await receiver.receive(timeout_s=seconds)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receiver.receive(timeout_s=1e300), 0.05)
    with (
        cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver,
        pytest.raises(ValueError, match="timeout_s must be a number of seconds"),
    ):
        receiver.receive(timeout_s=seconds)


@pytest.mark.parametrize(
    "value", [np.array(5), np.arange(6, dtype="u2")[::2], memoryview(b"abc"), bytearray(b"x"), b"y"]
)
def test_content_is_the_bytes_of_its_buffer(value):
    with cdt.Target("configs", servers="memory://content") as target:
        target.put("app-1", "e-1", value)
        assert target.get("app-1", "e-1").content == (value.tobytes() if hasattr(value, "tobytes") else bytes(value))


def test_a_misspelt_criterion_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'wehre': did you mean 'where'"):
        capture.Selection(wehre="type = 'DAT'")
