"""What became of contents, beside a plain reading of the same messages one after the other."""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.functions import rand

from peers.mtl import PING, Peers, confirm, content, lease, reject, response, summon
from peers.recorded import line
from peers.waiting import until
from trunkline import capture, mtl, spark
from trunkline.errors import LocalProtocolError
from trunkline.spark.contents import _properties

STEP_NS = 10**6
START_NS = 1_795_251_120 * 10**9
COUNTED = ("seq", "attempts", "fate", "status", "settled_seq", "latency_ns")
AGAIN = mtl.encode_table({"redelivered": True})
EMPTY = mtl.encode_table({})


@pytest.fixture
def decoded(session, tmp_path):
    """Decodes messages that are a millisecond apart, `(direction, peer, frames)`, in any order if need be."""

    def make(messages, *, name="one", seed=None, **options):
        lines = tmp_path / f"{name}.jsonl"
        with lines.open("w") as file:
            for at, (direction, peer, frames) in enumerate(messages):
                file.write(line(frames, START_NS + at * STEP_NS, direction=direction, peer=peer))
        capture.import_(lines, tmp_path / name, protocol="mtl")
        rows = session.read.parquet(str(tmp_path / name))
        if seed is not None:
            rows = rows.orderBy(rand(seed)).repartition(3)
        return spark.decode(rows, "mtl", **options)

    return make


def some(table, *names):
    return [tuple(row[name] for name in names) for row in spark.contents(table).orderBy("seq").collect()]


def fates(table):
    return {row["seq"]: (row["fate"], row["settled_seq"]) for row in spark.contents(table).collect()}


@pytest.mark.req("MTL-51", "MTL-53")
def test_both_directions_are_settled_by_the_other(decoded):
    table = decoded(
        [
            ("in", b"w", lease(1, "one")),
            ("out", b"w", response(1, 200)),
            ("in", b"w", content(2, "jobs", b"abc")),
            ("in", b"w", content(4, "jobs", b"d")),
            ("in", b"w", content(5, "jobs", b"e")),
            ("out", b"w", confirm(4, multiple=True)),
            ("out", b"r", content(1, "jobs", b"abc")),
            ("out", b"w", reject(5)),
            ("out", b"r", content(2, "jobs", b"d")),
            ("in", b"r", confirm(2)),
            ("in", b"r", reject(1, recycle=True)),
            ("in", b"r", PING),
            ("out", b"r", content(3, "jobs", b"abc", AGAIN)),
            ("in", b"r", confirm(9, multiple=True)),
            ("out", b"r", content(4, "jobs", b"f")),
            ("in", None, content(1, "jobs", b"x")),
        ]
    )
    found = spark.contents(table)
    assert found.columns == [
        "capture_id",
        "endpoint",
        "peer",
        "direction",
        "resource",
        "sequence",
        "body_bytes",
        "redelivered",
        "attempts",
        "fate",
        "status",
        "latency_ns",
        "seq",
        "settled_seq",
        "sent_at_ns",
        "settled_at_ns",
    ]
    names = ("direction", "sequence", "body_bytes", "redelivered", "attempts", "fate", "settled_seq", "latency_ns")
    assert some(table, *names) == [
        ("in", 2, 3, False, 1, "confirmed", 5, 3 * STEP_NS),
        ("in", 4, 1, False, 1, "confirmed", 5, 2 * STEP_NS),
        ("in", 5, 1, False, 1, "rejected", 7, 3 * STEP_NS),
        ("out", 1, 3, False, 1, "recycled", 10, 4 * STEP_NS),
        ("out", 2, 1, False, 1, "confirmed", 9, STEP_NS),
        ("out", 3, 3, True, 2, "confirmed", 13, STEP_NS),
        ("out", 4, 1, False, 1, "open", None, None),
        ("in", 1, 1, False, 1, "open", None, None),
    ]


@pytest.mark.req("MTL-51", "MTL-53")
def test_what_a_client_recorded_is_paired_by_its_endpoint(session, tmp_path):
    with (
        mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server,
        mtl.Client(connect=server.endpoints, capture=tmp_path / "capture") as client,
        client.writer("jobs") as writer,
        client.reader("jobs", window=1) as reader,
    ):
        reader.summon("jobs")
        for body in (b"a", b"bc"):
            writer.send(body)
        writer.flush(timeout_s=20)
        reader.receive(timeout_s=20).confirm()
        reader.receive(timeout_s=20).reject()
        until(lambda: server.stats.resources[1].rejected == 1)
    decoded = spark.decode(session.read.parquet(str(tmp_path / "capture")), "mtl")
    names = ("direction", "resource", "body_bytes", "fate")
    assert sorted(some(decoded, *names)) == [
        ("in", "jobs", 1, "confirmed"),
        ("in", "jobs", 2, "rejected"),
        ("out", "jobs", 1, "confirmed"),
        ("out", "jobs", 2, "confirmed"),
    ]


@pytest.mark.req("MTL-45", "MTL-61")
def test_a_response_is_about_the_latest_of_its_sequence(decoded):
    table = decoded(
        [
            ("in", b"w", lease(1, "one")),
            ("in", b"w", content(1, "jobs", b"a")),
            ("out", b"w", response(1, 200)),
            ("in", b"w", content(1, "jobs", b"b")),
            ("out", b"w", response(1, 400)),
            ("out", b"w", confirm(1)),
            ("in", b"w", content(3, "gone", b"c")),
            ("out", b"w", response(3, 404)),
            ("in", b"w", content(0, "jobs", b"d")),
            ("out", b"w", response(0, 400)),
        ]
    )
    found = some(table, *COUNTED)
    assert found == [
        (1, 1, "confirmed", None, 5, 4 * STEP_NS),
        (3, 1, "refused", 400, 4, STEP_NS),
        (6, 1, "refused", 404, 7, STEP_NS),
        (8, 1, "refused", 400, 9, STEP_NS),
    ]


@pytest.mark.req("MTL-34")
def test_another_lease_begins_another_connection(decoded):
    table = decoded(
        [
            ("in", b"r", lease(1, "one")),
            ("out", b"r", response(1, 200)),
            ("out", b"r", content(1, "jobs", b"a")),
            ("in", b"r", lease(7, "two")),  # it has one
            ("out", b"r", response(7, 403)),
            ("in", b"r", confirm(1)),
            ("out", b"r", content(2, "jobs", b"b")),
            ("in", b"r", lease(1, "three")),
            ("out", b"r", response(1, 200)),
            ("in", b"r", summon(1, "jobs")),
            ("out", b"r", response(1, 200)),
            ("out", b"r", content(1, "jobs", b"b", AGAIN)),
            ("in", b"r", confirm(2, multiple=True)),
        ]
    )
    assert fates(table) == {2: ("confirmed", 5), 6: ("open", None), 11: ("confirmed", 12)}


def test_what_names_what_is_to_come_settles_nothing_of_it(decoded):
    table = decoded(
        [
            ("out", b"r", content(1, "jobs", b"a")),
            ("in", b"r", confirm(2)),
            ("in", b"r", confirm(2**64 - 1, multiple=True)),
            ("out", b"r", content(2, "jobs", b"b")),
            ("in", b"r", confirm(0, multiple=True)),
        ]
    )
    assert fates(table) == {0: ("confirmed", 2), 3: ("open", None)}


@pytest.mark.req("MTL-54")
def test_attempts_are_counted_until_the_dead_letter(decoded):
    other = mtl.encode_table({"run": 5})
    both = mtl.encode_table({"run": 5, "redelivered": True})
    rows = [("out", b"r", content(1, "jobs", b"a")), ("out", b"r", content(2, "jobs", b"a", other))]
    rows += [("in", b"r", reject(2, multiple=True, recycle=True))]
    rows += [("out", b"q", content(1, "jobs", b"a", both)), ("in", b"q", reject(1))]
    rows += [("out", b"q", content(1, "jobs.dead", b"a", other)), ("out", b"q", content(2, "jobs", b"a", AGAIN))]
    assert some(decoded(rows), "seq", "attempts", "fate") == [
        (0, 1, "recycled"),
        (1, 1, "recycled"),
        (3, 2, "dead_lettered"),
        (5, 1, "open"),
        (6, 2, "open"),
    ]


def leases(messages):
    """The places of what leases were answered with, and of the leases that were refused: these begin no connection."""
    asked, answers, refused = {}, set(), set()
    for at, (_, peer, (kind, *said)) in enumerate(messages):
        if kind == "lease":
            asked[peer] = (said[0], at)
        elif kind == "response" and asked.get(peer, (None,))[0] == said[0]:
            answers.add(at)
            if said[1] != 200:
                refused.add(asked[peer][1])
            del asked[peer]
    return answers, refused


def naive(messages):
    """Each content's attempts, fate and what settled it, by its place."""
    answers, refused = leases(messages)
    peers = defaultdict(lambda: {True: [], False: []})
    found, tries = {}, {}
    for at, (direction, peer, (kind, *said)) in enumerate(messages):
        flow = peers[peer][(direction == "out") == (kind == "content")]
        if kind == "lease":
            if at not in refused:
                del peers[peer]
        elif kind == "response":
            sequence, status = said
            if at not in answers and status >= 400:
                same = [place for place in flow if messages[place][2][1] == sequence]
                if same and found[same[-1]]["fate"] == "open":
                    found[same[-1]].update(fate="refused", settled=at, status=status)
        elif kind == "content":
            sequence, redelivered, body = said
            rises = sequence > max([0, *(messages[place][2][1] for place in flow)])
            flow.append(at)
            of_it = tries.setdefault((direction, body), [0])
            of_it[0] = of_it[0] + 1 if redelivered else 1
            found[at] = {"fate": "open", "settled": None, "status": None, "attempts": of_it[0], "rises": rises}
        else:
            sequence, multiple, recycle = said
            fate = "confirmed" if kind == "confirm" else "recycled" if recycle else "rejected"
            for place in flow:
                number = messages[place][2][1]
                named = number <= sequence if multiple else number == sequence
                if named and found[place]["rises"] and found[place]["fate"] == "open":
                    found[place].update(fate=fate, settled=at)
    return [
        (
            at,
            one["attempts"],
            one["fate"],
            one["status"],
            one["settled"],
            one["settled"] and (one["settled"] - at) * STEP_NS,
        )
        for at, one in found.items()
    ]


def packed(said):
    kind, *rest = said
    match kind:
        case "lease":
            return lease(rest[0], "one")
        case "response":
            return response(*rest)
        case "content":
            sequence, redelivered, body = rest
            return content(sequence, "jobs", body, AGAIN if redelivered else EMPTY)
        case "confirm":
            return confirm(rest[0], multiple=rest[1])
        case _:
            return reject(rest[0], multiple=rest[1], recycle=rest[2])


numbers = st.integers(0, 6)
flags = st.booleans()
ways = st.sampled_from(["in", "out"])
spoken = st.one_of(
    st.tuples(ways, st.tuples(st.just("content"), numbers, flags, st.sampled_from([b"a", b"bb", b"ccc"]))),
    st.tuples(ways, st.tuples(st.sampled_from(["confirm", "reject"]), numbers, flags, flags)),
    st.tuples(st.just("out"), st.tuples(st.just("response"), numbers, st.sampled_from([200, 400, 404]))),
    st.tuples(st.just("in"), st.tuples(st.just("lease"), numbers)),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    captures=st.lists(st.lists(st.tuples(st.sampled_from([b"p", b"q"]), spoken), max_size=30), min_size=1, max_size=40)
)
def test_contents_are_what_a_plain_reading_makes_of_them(session, captures):
    """As many captures at a time as there are: a query costs the same for one."""
    rows, expected = [], set()
    for number, drawn in enumerate(captures):
        messages = [(way, peer, said) for peer, (way, said) in drawn]
        expected.update((str(number), *one) for one in naive(messages))
        for at, (way, peer, said) in enumerate(messages):
            header, body = packed(said)
            rows.append((str(number), at, START_NS + at * STEP_NS, None, way, peer, [], header, [body], None))
    schema = (
        "capture_id string, seq bigint, received_at_ns bigint, endpoint string, direction string, peer binary, "
        "envelope array<binary>, header binary, payload array<binary>, topic string"
    )
    table = session.createDataFrame(rows, schema).repartition(2)
    found = spark.contents(spark.decode(table, "mtl")).select("capture_id", *COUNTED).collect()
    assert {tuple(row) for row in found} == expected
    assert len(found) == len(expected)


def test_a_server_is_seen_through(session, open_socket, context, tmp_path):  # noqa: ARG001 - servers end before it does
    path = tmp_path / "capture"
    with mtl.Server(
        bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs", "jobs.dead"], max_recycle=1, capture=path
    ) as server:
        peers = Peers(open_socket, server)
        writer, reader = peers.writer(confirm="full"), peers.reader(confirm="full")
        for sequence in range(1, 6):
            writer.send_multipart(content(sequence, "", b"%d" % sequence))
            assert reader.recv_multipart()[1] == b"%d" % sequence
        reader.send_multipart(confirm(2, multiple=True))
        reader.send_multipart(reject(3, recycle=True))
        assert reader.recv_multipart()[1] == b"3"
        reader.send_multipart(reject(6, recycle=True))
        dead = peers.reader("jobs.dead", confirm="full")
        assert dead.recv_multipart()[1] == b"3"
        dead.send_multipart(confirm(1))
        reader.send_multipart(confirm(4))
        until(lambda: sum(one.confirmed for one in server.stats.resources) == 4)
    rows = session.read.parquet(str(path))
    for options in (
        {"properties": "json"},
        {"properties": {"redelivered": "boolean"}},
        {"properties": {"redelivered": "boolean", "*": "variant"}, "payload": True},
        {},
    ):
        found = spark.contents(spark.decode(rows, "mtl", **options)).orderBy("seq").collect()
        assert [row["fate"] for row in found if row["direction"] == "in"] == ["confirmed"] * 5
        out = [
            (row["resource"], row["sequence"], row["attempts"], row["fate"])
            for row in found
            if row["direction"] == "out"
        ]
        assert out == [
            ("jobs", 1, 1, "confirmed"),
            ("jobs", 2, 1, "confirmed"),
            ("jobs", 3, 1, "recycled"),
            ("jobs", 4, 1, "confirmed"),
            ("jobs", 5, 1, "open"),
            ("jobs", 6, 2, "dead_lettered"),
            ("jobs.dead", 1, 1, "confirmed"),
        ]
        assert all(row["latency_ns"] > 0 for row in found if row["settled_seq"])


def test_columns_that_are_missing_are_named(decoded):
    table = decoded([("in", b"w", content(1, "jobs", b"a"))])
    for name in ("peer", "multiple", "body_bytes"):
        with pytest.raises(LocalProtocolError, match=f"contents need what `decode` makes of.*missing: {name}"):
            spark.contents(table.drop(name))
    with pytest.raises(LocalProtocolError, match="the property redelivered"):
        spark.contents(table.drop("properties"))


def test_a_property_that_is_missing_is_not_the_same_as_another(session):
    """Spark's own hashes pass over nulls."""
    rows = session.createDataFrame(
        [("x", None, True), (None, "x", True), ("x", None, True)],
        "property_a string, property_b string, property_redelivered boolean",
    )
    numbers = [row[0] for row in rows.select(_properties(rows)["property_alike"]).collect()]
    assert numbers[0] == numbers[2] != numbers[1]
