"""What type checkers see of the blocking roles, of captures and of codecs. Not run: read by mypy and pyright."""

import concurrent.futures
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, assert_type

import zmq

import trunkline
from trunkline import capture, cdt, cdtp, chirp, columns, dcp, mc0, msgpack, mtl


def sends(array: bytearray, context: zmq.Context[zmq.Socket[bytes]], options: trunkline.RoleOptions) -> None:
    with cdtp.Sender("Det", bind="tcp://127.0.0.1:*", header="2", overflow="raise", context=context) as sender:
        assert_type(sender, cdtp.Sender)
        assert_type(sender.endpoints, tuple[str, ...])
        assert_type(sender.stats, cdtp.SenderStats)
        sender.begin_run({"gain": 3})
        sender.send(b"x", tags={"n": 1, "when": msgpack.Timestamp(0, 0)}, timestamp_ns=None, timeout_s=1)
        sender.send([b"x", memoryview(array), zmq.Frame(b"y")])
        sender.end_run()
    cdtp.Sender("Det", **options).close()

    sender.send("text")  # type: ignore[arg-type]
    sender.send([1, 2])  # type: ignore[list-item]
    sender.send(b"x", tag={})  # type: ignore[call-arg]
    cdtp.Sender("Det", header="C", bind="tcp://127.0.0.1:*")  # type: ignore[arg-type]
    cdtp.Sender("Det", conect="tcp://127.0.0.1:1")  # type: ignore[call-arg]
    cdtp.Sender("Det", queue_messages="many", bind="tcp://127.0.0.1:*")  # type: ignore[arg-type]


def receives(curve: trunkline.Curve) -> None:
    def on_drop(dropped: trunkline.Dropped) -> None:
        assert_type(dropped.error, trunkline.DecodeError | None)
        assert_type(dropped.kind, str)
        assert_type(dropped.frames, tuple[bytes, ...])

    with cdtp.Receiver(connect=["tcp://127.0.0.1:1"], accept=("S", "2"), on_drop=on_drop, curve=curve) as receiver:
        for message in receiver:
            assert_type(message, cdtp.Message)
            assert_type(message.sender, str)
            assert_type(message.variant, Literal["S", "A", "B", "2"])
            assert_type(message.timestamp_ns, int | None)
            assert_type(message.type, Literal["BOR", "DAT", "EOR"] | None)
            assert_type(message.sequence, int | None)
            assert_type(message.tags, dict[str, Any])
            assert_type(message.payload, tuple[bytes, ...])
        assert_type(receiver.receive(timeout_s=1), cdtp.Message)
        assert_type(receiver.stats.senders["Det"].missed, int)
    receiver.send(b"x")  # type: ignore[attr-defined]


def records(path: Path) -> None:
    with cdtp.Recorder(path, group="lab", senders=["Det"], keep_bytes=1 << 30) as recorder:
        assert_type(recorder.wait(count=1, timeout_s=1), Literal["count", "idle"])
        assert_type(recorder.stats.durable, int)
    cdtp.Recorder(path, capture=path, group="lab")  # type: ignore[call-arg]


def announces() -> None:
    with chirp.Beacon("lab", "Det", names=["Other"]) as beacon:
        beacon.offer(chirp.Service.DATA, 23999)
        for event in beacon:
            assert_type(event, chirp.Event)
            assert_type(event.kind, Literal["offer", "request", "depart"])
            assert_type(event.endpoint, str | None)
    beacon.offer("data", 1)  # type: ignore[arg-type]


def passes_on(endpoint: str) -> None:
    with mc0.Middleware(bind=endpoint, policy="policy.toml", overflow="disconnect") as bus:
        assert_type(bus.stats.topics, Sequence[mc0.TopicStats])
        bus.reload()
    mc0.Middleware(bind=endpoint, overflow="block")  # type: ignore[arg-type]


def serves(endpoint: str) -> None:
    with dcp.Broker(bind=endpoint, overflow="drop-oldest", allowed_services=[b"echo"]) as broker:
        assert_type(broker.services(), Sequence[dcp.ServiceStats])
    with dcp.Worker(b"echo", connect=endpoint, concurrency=4) as worker:
        for request in worker:
            assert_type(request, dcp.Request)
            assert_type(request.data, tuple[bytes, ...])
            request.reply(request.data)
            request.forward(b"other", [b"x"])
        worker.serve(lambda request: request.data)
        worker.serve(lambda _: None)
    dcp.Worker("echo", connect=endpoint)  # type: ignore[arg-type]


def asks(endpoint: str) -> None:
    with dcp.Client(connect=endpoint) as client:
        reply = client.request(b"echo", [b"x"], timeout_s=1, retries=3)
        assert_type(reply, dcp.Reply)
        assert_type(reply.data, tuple[bytes, ...])
        assert_type(client.submit(b"echo", b"x"), concurrent.futures.Future[dcp.Reply])
    client.request("echo", b"x")  # type: ignore[arg-type]


def subscribes(endpoint: str) -> None:
    with mc0.Connector(connect=endpoint, ttl_ms=None, on_error=lambda message: message.text) as connector:
        connector.subscribe("alerts", b"runs", timeout_s=5)
        connector.put("runs", [b"x", memoryview(b"y")], headers={"X-Origin": "daq"}, confirm=True)
        connector.put(b"runs", b"x", headers=[("X-Origin", b"daq")])
        assert_type(connector.submit("runs", b"x"), concurrent.futures.Future[None])
        assert_type(connector.ping(timeout_s=1), float)
        assert_type(connector.stats, mc0.ConnectorStats)
        for message in connector:
            assert_type(message, mc0.Message)
            assert_type((message.topic, message.body), tuple[str | None, tuple[bytes, ...]])
    connector.put("runs", "x")  # type: ignore[arg-type]
    connector.subscribe(["runs"])  # type: ignore[arg-type]


def reads(path: Path) -> None:
    opened = capture.open(path)
    assert_type(opened, capture.Capture)
    for message in opened:
        if isinstance(message, cdtp.Message):
            assert_type(message.tags, dict[str, Any])
        elif isinstance(message, dcp.Message):
            assert_type(message.service, bytes | None)
        elif isinstance(message, mc0.Message):
            assert_type(message, mc0.Message)
        elif isinstance(message, mtl.Command | mtl.Reply | mtl.Message):
            assert_type(message, mtl.Command | mtl.Reply | mtl.Message)
        else:
            assert_type(message.correlation_id, str)
    assert_type(iter(opened), Iterator[capture.AnyMessage])
    assert_type(opened.messages("cdtp"), Iterator[cdtp.Message])
    assert_type(opened.messages("dcp"), Iterator[dcp.Message])
    assert_type(opened.messages("mc0"), Iterator[mc0.Message])
    for content in opened.messages("mtl"):
        assert_type(content, mtl.Command | mtl.Reply | mtl.Message)
    for notice in opened.messages("cdt"):
        assert_type(notice.correlation_id, str)
    opened.messages("xyz")  # type: ignore[call-overload]
    assert_type(capture.replay(path, bind="tcp://127.0.0.1:*", rate=1000), int)
    capture.replay(path, rate="fast")  # type: ignore[arg-type]


def configures(url: str) -> None:
    with (
        cdt.Target("cdp", servers=url, store=cdt.MemoryStore()) as target,
        cdt.Source("cmx", target="cdp", servers=[url], codec="avro") as source,
    ):
        assert_type(target.put("app", "endpoint", b"x", if_current=None), str)
        assert_type(target.get("app", "endpoint").content, bytes)
        assert_type(target.rollout("app"), Sequence[cdt.Rollout])
        assert_type(target.stats, cdt.TargetStats)
        assert_type(source.pull("app", "endpoint", timeout_s=None), cdt.ConfigResponse)
        assert_type(source.push("app", "endpoint", b"x", confirm="applied"), str)
        for event in source:
            assert_type(event, cdt.ConfigNewAvailable | cdt.ConfigUpdated)
        for response in source.watch("app", "endpoint"):
            assert_type(response.content, bytes | None)
    source.push("app", "endpoint", "x")  # type: ignore[arg-type]
    cdt.Source("cmx", target="cdp", codec="xml")  # type: ignore[arg-type]


def decodes(frames: list[bytes]) -> None:
    assert_type(cdtp.decode(frames), cdtp.Message | cdtp.Batch)
    assert_type(dcp.decode(frames), dcp.Message)
    assert_type(mc0.decode(frames), mc0.Message)
    assert_type(mc0.encode(mc0.Message("PUT", {"TOPIC": "runs"}, [b"x"])), tuple[bytes, ...])
    mc0.Message("PING")  # type: ignore[arg-type]
    assert_type(cdtp.encode(cdtp.Message("Det", b"x", timestamp_ns=0)), tuple[bytes, ...])
    assert_type(columns.Decoder("cdtp", tags=None).protocol.name, str)
    try:
        cdtp.decode([])
    except trunkline.DecodeError as error:
        assert_type(error.kind, str)
        assert_type(error.offset, int)
