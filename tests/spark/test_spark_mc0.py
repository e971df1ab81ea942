"""mc0 messages put together by hand, as tables."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.classic.dataframe import DataFrame

from peers.recorded import line
from trunkline import capture, spark
from trunkline.errors import DecodeError, LocalProtocolError

VECTORS = Path(__file__).parent.parent / "vectors" / "mc0"
NAMES = (
    "verb",
    "topic",
    "topics",
    "id",
    "version",
    "ttl_ms",
    "headers",
    "text",
    "body_frames",
    "body_bytes",
    "body",
    "error",
    "_corrupt_record",
)
SCHEMA = "seq bigint, envelope array<binary>, header binary, payload array<binary>"


def says(verb, **values):
    return dict.fromkeys(NAMES) | {"verb": verb, "headers": {}} | values


def carries(verb, topic, *body, **values):
    counts = {"body_frames": len(body), "body_bytes": sum(map(len, body))}
    return says(verb, topic=topic, body=list(body), **counts, **values)


# Messages without the empty frame that may lead, and what is to be found in their rows.
GOOD = [
    (
        [b"CONNECT", b"VERSION", b"0.3", b"TTL", b"0900", b"ID", b"1"],
        says("CONNECT", id="1", version="0.3", ttl_ms=900),
    ),
    ([b"CONNECT"], says("CONNECT")),
    ([b"CONNECT", b"TTL", b"0"], says("CONNECT", ttl_ms=0)),
    ([b"DISCONNECT"], says("DISCONNECT")),
    ([b"SUB", b"ID", b"2", b"", b"a", b"", b"b c"], says("SUB", id="2", topics=["a", "", "b c"])),
    ([b"SUB"], says("SUB", topics=[])),
    ([b"UNSUB", b"", b"a"], says("UNSUB", topics=["a"])),
    ([b"PUT", b"TOPIC", b"a"], carries("PUT", "a")),
    (
        [b"PUT", b"X-One", b"1", b"TOPIC", b"a", b"FOO", b"2", b"ID", b"", b"", b"abc", b"", b"\xff"],
        carries("PUT", "a", b"abc", b"", b"\xff", id="", headers={"X-One": "1"}),
    ),
    ([b"NOOP", b"TOPIC", b"t", b"TTL", b"x", b"MESSAGE", b"m", b"", b"more"], says("NOOP")),
    ([b"MESSAGE", b"TOPIC", b"", b"X-", b"", b"", b"x"], carries("MESSAGE", "", b"x", headers={"X-": ""})),
    ([b"OK", b"ID", b"2"], says("OK", id="2")),
    ([b"ERROR", b"MESSAGE", b"not so"], says("ERROR", text="not so")),
]
BAD = {
    "missing_verb": [],
    "unknown_verb": [b"PING"],
    "odd_headers": [b"NOOP", b"ID"],
    "unsupported_version": [b"CONNECT", b"VERSION", b"1.0"],
    "bad_ttl": [b"CONNECT", b"TTL", b"-1"],
    "missing_topic": [b"PUT", b"", b"x" * 1000],
    "missing_id": [b"OK"],
}


def messages():
    """Every message in both styles, with what is to be found in its row."""
    for frames, said in GOOD:
        yield frames, said
        yield [b"", *frames], said
    for kind, frames in BAD.items():
        for each in (frames, [b"", *frames]):
            yield each, dict.fromkeys(NAMES) | {"error": kind, "_corrupt_record": each}


def vectors():
    """The frames of each vector for the default settings, and what is to be found in its row."""
    for file in ("messages.json", "errors.json"):
        for vector in json.loads((VECTORS / file).read_text()):
            if vector.get("settings"):
                continue
            frames = [bytes.fromhex(frame) for frame in vector["frames"]]
            if "error" in vector:
                yield frames, dict.fromkeys(NAMES) | {"error": vector["error"]["kind"], "_corrupt_record": frames}
            else:
                yield frames, row_of(vector["decoded"])


def row_of(decoded):
    def text(value):
        return bytes.fromhex(value).decode(errors="replace")

    verb, positional = decoded["verb"], [bytes.fromhex(frame) for frame in decoded["positional"]]
    said = {name: text(decoded[name]) for name in ("topic", "id", "version", "text") if name in decoded}
    headers = {text(key): text(value) for key, value in decoded["headers"] if text(key).startswith("X-")}
    if verb in {"SUB", "UNSUB"}:
        said["topics"] = [frame.decode(errors="replace") for frame in positional]
    if verb in {"PUT", "MESSAGE"}:
        said |= {"body": positional, "body_frames": len(positional), "body_bytes": sum(map(len, positional))}
    return says(verb, ttl_ms=decoded.get("ttl_ms"), **said) | {"headers": headers}


@pytest.fixture
def captured(tmp_path):
    """Makes a capture of messages, numbered by `seq`, each with a direction and a peer."""

    def make(messages, **options):
        lines = tmp_path / "messages.jsonl"
        with lines.open("w") as file:
            for at, (direction, peer, frames) in enumerate(messages):
                file.write(line(frames, at, direction=direction, peer=peer))
        capture.import_(lines, tmp_path / "capture", protocol="mc0", **options)
        return str(tmp_path / "capture")

    return make


def plain(row, names):
    """A row as values of Python's own."""

    def value(name, found):
        if name == "headers":
            return found if found is None else dict(found)
        if isinstance(found, list):
            return [part if isinstance(part, str) else bytes(part) for part in found]
        return found

    return {name: value(name, row[name]) for name in names}


def split(frames):
    """As a capture does: the empty frame that leads, the verb, the rest."""
    at = int(frames[:1] == [b""])
    return frames[:at], frames[at] if at < len(frames) else None, frames[at + 1 :]


@pytest.mark.req("MC0-06", "MC0-07", "MC0-08", "MC0-09", "MC0-34")
@pytest.mark.parametrize("given", [messages, vectors])
def test_every_message_is_a_row(session, captured, given):
    expected = list(given())
    assert len(expected) >= 40
    path = captured([("in", b"p", frames) for frames, _ in expected], segment_bytes=2000)
    rows = session.read.parquet(path)
    found = spark.decode(rows, "mc0", payload=True).orderBy("seq").collect()
    assert [plain(row, NAMES) for row in found] == [row for _, row in expected]
    assert {(bytes(row["peer"]), row["direction"]) for row in found} == {(b"p", "in")}
    assert [row["error"] for row in rows.orderBy("seq").collect()] == [row["error"] for _, row in expected]

    # Bodies that stay in the JVM are counted alike, and nothing of what is no message is lost.
    names = [name for name in NAMES if name != "body"]
    without = spark.decode(rows, "mc0").orderBy("seq").collect()
    assert [plain(row, names) for row in without] == [plain(row, names) for _, row in expected]
    counted = spark.decode(rows.drop("n_frames", "n_bytes"), "mc0")
    assert counted.orderBy("seq").collect() == without
    arrow = capture.open(path).decode("mc0").read_all()
    assert [plain(row, names) for row in arrow.to_pylist()] == [plain(row, names) for row in without]
    assert arrow.schema.names == counted.columns


def test_all_ways_give_the_same_values(session):
    frames = [frames for frames, _ in messages()]
    rows = session.createDataFrame([(at, *split(each)) for at, each in enumerate(frames)], SCHEMA).union(
        session.createDataFrame([(len(frames), None, None, None)], SCHEMA)
    )
    columns = ("envelope", "header", "payload")
    decoded = spark.decode(rows, "mc0", payload=True).orderBy("seq").collect()
    structs = rows.select("seq", spark.from_mc0(*columns, body=True).alias("m")).orderBy("seq").collect()
    pandas = rows.select("seq", spark.pandas_udfs.mc0(*columns, body=True).alias("m")).orderBy("seq").collect()
    assert structs == pandas
    assert structs[-1]["m"] is None
    assert [(row["seq"], *row["m"]) for row in structs[:-1]] == decoded[:-1]
    assert set(decoded[-1][1:]) == {None}
    for function in (spark.from_mc0, spark.pandas_udfs.mc0):
        without = rows.select("seq", function(*map(F.col, columns)).alias("m")).orderBy("seq").collect()
        assert [row["m"] and row["m"].asDict() for row in without] == [
            row["m"] and {name: value for name, value in row["m"].asDict().items() if name != "body"} for row in structs
        ]
        # By default no frame is before the verb.
        shown = rows.select("seq", function("header", "payload").alias("m")).orderBy("seq").collect()
        assert [row["m"] and row["m"]["verb"] for row in shown] == [row["m"] and row["m"]["verb"] for row in structs]
        assert [row["m"] is None for row in shown] == [row["m"] is None for row in structs]


def test_columns_are_those_of_the_contract(session):
    rows = session.createDataFrame([], spark.capture_schema())
    decoded = spark.decode(rows, "mc0", payload=True)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in decoded.schema] == [
        "capture_id string",
        "segment bigint",
        "seq bigint",
        "received_at_ns bigint",
        "endpoint string",
        "direction string",
        "peer binary",
        "verb string",
        "topic string",
        "topics array<string>",
        "id string",
        "version string",
        "ttl_ms bigint",
        "headers map<string,string>",
        "text string",
        "body_frames int",
        "body_bytes bigint",
        "body array<binary>",
        "error string",
        "_corrupt_record array<binary>",
        "received_at timestamp",
    ]
    assert "_corrupt_record" not in spark.decode(rows, "mc0", mode="DROPMALFORMED").columns
    assert decoded.count() == 0


@pytest.mark.req("MC0-05")
def test_what_is_no_text_is_replaced_and_kept_as_it_was_in_the_capture(session, captured, tmp_path):
    put = [b"PUT", b"TOPIC", b"t\xff", b"ID", b"\xc3", b"X-a", b"1", b"X-b", b"\xfe", b"X-a", b"2", b"", b"\xff"]
    alike = [b"PUT", b"TOPIC", b"t", b"X-\xfe", b"1", b"X-\xff", b"2"]
    path = captured([("in", b"p", put), ("in", b"p", alike), ("in", b"p", [b"SUB", b"", b"\xff", "é".encode()])])
    decoded = spark.decode(session.read.parquet(path), "mc0", payload=True)
    rows = decoded.orderBy("seq").collect()
    assert [(row["topic"], row["id"]) for row in rows] == [("t\ufffd", "\ufffd"), ("t", None), (None, None)]
    assert [row["headers"] for row in rows] == [{"X-a": "2", "X-b": "\ufffd"}, {"X-\ufffd": "2"}, {}]
    assert rows[2]["topics"] == ["\ufffd", "é"]
    assert list(map(bytes, rows[0]["body"])) == [b"\xff"]
    # What Spark makes of maps itself holds for these.
    decoded.write.parquet(str(tmp_path / "table"))
    table = session.read.parquet(str(tmp_path / "table"))
    assert table.where("headers['X-a'] = '2' AND size(headers) = 2").count() == 1
    assert table.where("array_contains(topics, 'é')").count() == 1
    payload = session.read.parquet(path).where("seq = 0").select("payload").collect()[0][0]
    assert bytes(payload[1]) == b"t\xff"


@pytest.mark.req("MC0-32")
def test_bodies_stay_in_the_jvm(session, captured, monkeypatch):
    body = [b"x" * 1_000_000, b""]
    good = [
        [b"", b"PUT", b"TOPIC", b"t", b"", *body],
        [b"MESSAGE", b"TOPIC", b"t", b"X-a", b"1", b"", *body],
        [b"", b"SUB", b"", b"t", b"u"],
    ]
    rows = session.read.parquet(captured([("in", b"p", frames) for frames in good]))
    decoded = spark.decode(rows, "mc0").orderBy("seq").collect()
    assert [(row["body_frames"], row["body_bytes"]) for row in decoded] == [(2, 1_000_000)] * 2 + [(None, None)]
    assert decoded[2]["topics"] == ["t", "u"]
    assert spark.decode(rows.drop("n_frames", "n_bytes"), "mc0").orderBy("seq").collect() == decoded
    struct = spark.from_mc0("envelope", "header", "payload", n_head="n_head")
    assert [row[0]["body_bytes"] for row in rows.select(struct).collect()] == [1_000_000, 1_000_000, None]
    # What goes to Python is what the function is given.
    monkeypatch.setattr(DataFrame, "mapInArrow", lambda sent, *_: sent)
    sent = spark.decode(rows, "mc0").orderBy("seq").select(F.transform("payload", F.octet_length)).collect()
    assert [row[0] for row in sent] == [[5, 1, 0], [5, 1, 3, 1, 0], [0, 1, 1]]


def test_modes(session):
    bad, good = [b"", b"PUT", b"", b"body"], [b"", b"NOOP"]
    rows = session.createDataFrame([(at, *split(each)) for at, each in enumerate([good, bad, good])], SCHEMA)
    dropped = spark.decode(rows, "mc0", mode="DROPMALFORMED").orderBy("seq").collect()
    assert [(row["seq"], row["verb"]) for row in dropped] == [(0, "NOOP"), (2, "NOOP")]
    with pytest.raises(PythonException, match="missing_topic in frame 2 at byte 0"):
        spark.decode(rows, "mc0", mode="FAILFAST").collect()
    with pytest.raises(PythonException, match="missing_topic in frame 2"):
        rows.select(spark.from_mc0("envelope", "header", "payload", mode="FAILFAST")).collect()
    for function in (spark.from_mc0, spark.pandas_udfs.mc0):
        with pytest.raises(LocalProtocolError, match="DROPMALFORMED"):
            function("envelope", "header", "payload", mode="DROPMALFORMED")


def test_what_cannot_be_is_refused_when_the_plan_is_made(session, captured):
    rows = session.createDataFrame([], spark.capture_schema())
    for option, value in {"tags": None, "accept": ("S",), "compat_dagbox": False}.items():
        with pytest.raises(LocalProtocolError, match=f"{option} does not apply to MC0"):
            spark.decode(rows, "mc0", **{option: value})
    for name in ("envelope", "header", "payload"):
        with pytest.raises(LocalProtocolError, match=f"no column {name}"):
            spark.decode(rows.drop(name), "mc0")
    for function in (spark.from_mc0, spark.pandas_udfs.mc0):
        for frames in ((), ("header",), ("a", "b", "c", "d")):
            with pytest.raises(LocalProtocolError, match=rf"{len(frames)} columns?\b"):
                function(*frames)
    path = captured([("in", None, [b"", b"PING"])])
    with pytest.raises(DecodeError, match="unknown_verb in frame 1 at byte 0"):
        capture.open(path).decode("mc0", mode="FAILFAST").read_all()


def test_only_the_columns_that_are_wanted_are_made(session, captured):
    path = captured([("in", b"p", [b"", b"PUT", b"TOPIC", b"t", b"", b"body"])])
    decoded = spark.decode(session.read.parquet(path), "mc0", columns=["topic", "headers", "seq"])
    assert decoded.columns == ["seq", "topic", "headers"]
    assert [tuple(row) for row in decoded.collect()] == [(0, "t", {})]
