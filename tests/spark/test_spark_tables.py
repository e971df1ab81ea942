"""Tables of what several rows make up are those of the captures, in whatever order Spark reads the rows."""

import json

import pytest
from pyspark.sql.functions import rand

from peers.mtl import confirm, content, lease, reject, response
from peers.recorded import line
from trunkline import capture, cdtp, mtl, spark
from trunkline._native.analysis import Fold
from trunkline.errors import LocalProtocolError

STEP_NS = 10**6 + 7
START_NS = 1_795_251_120 * 10**9
AGAIN = mtl.encode_table({"redelivered": True, "x": 1})
PLAIN = mtl.encode_table({"x": 1})
OTHER = mtl.encode_table({"x": "1", "redelivered": True})
H = b"DGBX\x01"
TABLES = ("gaps", "requests", "topics", "contents", "rollout")
PROPERTIES = {"redelivered": "boolean", "*": "variant"}


def dat(sender, sequence, kind="DAT"):
    sent = cdtp.Message(sender, [b"\x80"], variant="A", type=kind, sequence=sequence, timestamp_ns=1)
    return list(cdtp.encode(sent))


def ask(service, client, *metadata):
    return [b"", H, b"\x04", service, *([] if client is None else [client]), b"", *metadata, b"", b"x"]


def answer(client, *metadata):
    return [b"", H, b"\x05", client, b"", *metadata, b"", b"y"]


def put(topic, *body):
    return [b"", b"PUT", b"TOPIC", topic, b"ID", b"1", b"", *body]


def message(topic, *body):
    return [b"", b"MESSAGE", b"TOPIC", topic, b"", *body]


def event(kind, config, correlation):
    ids = {"appVersionName": "a", "endpointId": "e", "configId": config, "correlationId": correlation}
    return [json.dumps(ids | {"timestamp": 1}).encode()], f"kaa.v1.events.cdp.endpoint.config.{kind}"


def messages(name, rounds):
    """Messages of which one table is made: direction, peer, frames and, of CDT, the subject."""
    for at in range(rounds):
        match name:
            case "gaps":
                yield from (("in", None, dat(sender, 3 * at)) for sender in ("a", "b"))
                yield "in", None, dat("c", at)
                if at % 10 == 9:
                    yield "in", None, dat("a", 0, "BOR")
            case "requests":
                metadata = b"%d" % (at % 3)
                yield "in", b"c", ask(b"s", None, metadata)
                yield "out", b"w", ask(b"s", b"c", metadata)
                if at % 4:
                    yield "in", b"w", answer(b"c", metadata)
                    yield "out", b"c", answer(b"c", metadata)
                yield "out", None, ask(b"s", None, metadata)
            case "topics":
                topic = b"t%d" % (at % 3)
                yield "in", b"p", put(topic, b"x" * (at % 2))
                yield from (("out", peer, message(topic, b"x" * (at % 2))) for peer in (b"s1", b"s2"))
                yield "in", None, message(topic, b"x")
            case "contents":
                yield "in", b"w", lease(1, "one")
                yield "out", b"w", response(1, 200)
                yield "in", b"w", content(2, "jobs", b"ab")
                yield "out", b"w", confirm(2)
                table = (PLAIN, AGAIN, OTHER)[at % 3]
                yield "out", b"r", content(at + 1, "jobs", b"ab", table)
                yield "in", b"r", reject(at + 1, recycle=True)
                if at % 5 == 4:
                    yield "out", b"d", content(at + 1, "jobs.dead", b"ab", PLAIN)
            case "rollout":
                for kind in ("ConfigNewAvailable", "ConfigUpdated"):
                    yield "out", None, event(kind, f"c{at % 4}", str(at))
                    yield "in", None, event(kind, f"c{at % 4}", str(at))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Makes captures of messages of which a table is made."""
    made = {}

    def make(name, rounds=40):
        if (name, rounds) in made:
            return made[name, rounds]
        path = tmp_path_factory.mktemp(name)
        protocol = Fold(name).protocol
        with (path / "lines.jsonl").open("w") as file:
            for number, (direction, peer, said) in enumerate(messages(name, rounds)):
                frames, topic = said if isinstance(said, tuple) else (said, None)
                at = START_NS + number * STEP_NS
                file.write(line(frames, at, direction=direction, peer=peer, topic=topic))
        capture.import_(path / "lines.jsonl", path / "capture", protocol=protocol)
        return made.setdefault((name, rounds), path / "capture")

    return make


def by_spark(name, rows):
    match name:
        case "gaps":
            return spark.gaps(rows)
        case "requests":
            return spark.pair_requests(rows)
        case "topics":
            return spark.topics(spark.decode(rows, "mc0"), "10 milliseconds")
        case "contents":
            return spark.contents(spark.decode(rows, "mtl", properties=PROPERTIES))
    return spark.rollout(spark.decode(rows, "cdt"))


def by_capture(name, path):
    opened = capture.open(path)
    return opened.topics(0.01) if name == "topics" else getattr(opened, name)()


def sorted_rows(rows):
    return sorted(rows, key=repr)


@pytest.mark.parametrize("name", TABLES)
def test_rows_in_any_order_give_the_table_of_the_capture(session, recorded, name):
    path = recorded(name)
    found = by_spark(name, session.read.parquet(str(path)).orderBy(rand(7)).repartition(7))
    expected = by_capture(name, path).read_all()
    assert found.columns == expected.schema.names
    assert sorted_rows(found.toArrow().to_pylist()) == sorted_rows(expected.to_pylist())
    assert len(expected) > 3


@pytest.mark.parametrize("name", ["gaps", "requests", "contents"])
def test_captures_are_told_apart(session, recorded, name):
    paths = [recorded(name), recorded(name, 7)]
    found = by_spark(name, session.read.parquet(*map(str, paths)).repartition(7))
    expected = [row for path in paths for row in by_capture(name, path).read_all().to_pylist()]
    assert sorted_rows(found.toArrow().to_pylist()) == sorted_rows(expected)


def test_topics_of_several_captures_are_one_row_a_window(session, recorded):
    paths = [recorded("topics"), recorded("topics", 7)]
    found = spark.topics(spark.decode(session.read.parquet(*map(str, paths)).repartition(7), "mc0"), "1 hour")
    single = [row for path in paths for row in capture.open(path).topics(3600).read_all().to_pylist()]
    for row in found.toArrow().to_pylist():
        same = [one for one in single if all(one[name] == row[name] for name in ("window", "seen_by", "topic"))]
        assert len(same) == 2
        assert [row[name] for name in ("puts", "deliveries", "bytes")] == [
            sum(one[name] for one in same) for name in ("puts", "deliveries", "bytes")
        ]
    assert found.count() == len(single) // 2


def test_a_rollout_of_several_captures_is_one_row_a_configuration(session, recorded):
    paths = [recorded("rollout"), recorded("rollout", 4)]
    found = by_spark("rollout", session.read.parquet(*map(str, paths)).repartition(7)).orderBy("config_id")
    more, less = (by_capture("rollout", path).read_all().to_pylist() for path in paths)
    expected = [
        row | {name: row[name] + one[name] for name in ("announcements", "reports")}
        for row, one in zip(more, less, strict=True)
    ]
    assert found.toArrow().to_pylist() == expected


@pytest.mark.parametrize(
    "properties",
    ["variant", "json", PROPERTIES, {"x": "json", "*": "json"}, {"redelivered": "boolean", "x": "json"}],
)
def test_contents_take_properties_of_any_type(session, recorded, properties):
    rows = session.read.parquet(str(recorded("contents")))
    found = spark.contents(spark.decode(rows, "mtl", properties=properties))
    expected = by_capture("contents", recorded("contents")).read_all().to_pylist()
    assert sorted_rows(found.toArrow().to_pylist()) == sorted_rows(expected)


@pytest.fixture
def _large_types(session):
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    yield
    session.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


@pytest.mark.usefixtures("_large_types")
@pytest.mark.parametrize(
    ("name", "properties"), [*((name, None) for name in TABLES), ("contents", "variant"), ("contents", "json")]
)
def test_tables_take_the_large_types_of_arrow(session, recorded, name, properties):
    rows = session.read.parquet(str(recorded(name)))
    found = spark.contents(spark.decode(rows, "mtl", properties=properties)) if properties else by_spark(name, rows)
    expected = by_capture(name, recorded(name)).read_all().to_pylist()
    assert sorted_rows(found.toArrow().to_pylist()) == sorted_rows(expected)


def test_gaps_take_the_columns_of_a_capture(session):
    with pytest.raises(LocalProtocolError, match="gaps need the columns of a capture; missing: endpoint"):
        spark.gaps(session.createDataFrame([], spark.capture_schema()).drop("endpoint"))
    assert spark.gaps(session.createDataFrame([], spark.capture_schema())).count() == 0


def test_windows_are_as_long_as_spark_reads_them(session, recorded):
    decoded = spark.decode(session.read.parquet(str(recorded("topics"))), "mc0")
    for window, seconds in (("1 hour 30 minutes", 5400), ("1 day", 86400)):
        [row, *_] = spark.topics(decoded, window).collect()
        assert (row["window"]["end"] - row["window"]["start"]).total_seconds() == seconds
