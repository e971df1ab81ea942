"""The data source: captures in batches, whole and decoded, and what it refuses."""

import json
import os
import shutil

import pyarrow.parquet
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import spark_partition_id

from peers.commands import batch, release
from peers.decoded_files import alter
from peers.older import again, copied
from peers.recorded import AT, line
from trunkline import capture, spark
from trunkline._native.capture import Import, published
from trunkline.columns import protocols
from trunkline.spark.source import TrunklineSource

OPTIONS = {"cdtp": {"tags": "run bigint, * variant"}, "mtl": {"properties": "json", "json": "none"}}


def rows_of(frame):
    """The rows of a table as text, in recorded order."""
    kept = [column for column in ("capture_id", "seq", "record") if column in frame.columns]
    texts = frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS text", *kept)
    return [row.text for row in texts.orderBy(*kept).collect()]


def read(session, path, **options):
    return session.read.format("trunkline").options(**options).load(str(path))


@pytest.fixture
def add(tmp_path):
    """Adds a segment of messages to a capture."""

    def add(name, *messages, protocol="cdtp", **fields):
        lines = tmp_path / "lines.jsonl"
        lines.write_text(
            "".join(line(frames, AT + at, protocol=protocol, **fields) for at, frames in enumerate(messages))
        )
        capture.import_(lines, tmp_path / name)
        return tmp_path / name

    return add


def test_it_is_found_without_a_registration_and_gives_the_rows_of_a_capture(session, recorded):
    rows = read(session, recorded)
    assert rows.schema.simpleString() == spark.capture_schema().simpleString()
    plain = session.read.schema(spark.capture_schema()).parquet(f"{recorded}/[0-9]*.parquet")
    assert rows_of(rows) == rows_of(plain)


@pytest.mark.parametrize("protocol", [known.name for known in protocols()])
def test_what_it_decodes_is_what_decode_makes_of_the_rows(session, every_protocol, protocol):
    options = OPTIONS.get(protocol, {})
    decoded = read(session, every_protocol, protocol=protocol, decode=True, payload=True, **options)
    columns = {"tags": {"run": "bigint", "*": "variant"}} if protocol == "cdtp" else {}
    columns = {"properties": "json", "json": None} if protocol == "mtl" else columns
    expected = spark.decode(read(session, every_protocol), protocol, payload=True, **columns)
    assert decoded.columns == expected.columns
    assert decoded.schema.simpleString() == expected.schema.simpleString()
    assert decoded.count() > 0
    assert rows_of(decoded) == rows_of(expected)


@pytest.mark.parametrize("protocol", [known.name for known in protocols()])
def test_what_was_decoded_beside_is_read_instead(session, every_protocol, tmp_path, protocol):
    path = shutil.copytree(every_protocol, tmp_path / "copy")

    def ids(**options):
        rows = read(session, path, protocol=protocol, decode=True, **options).orderBy("seq")
        return [row.capture_id for row in rows.collect()]

    columns = {"columns": "capture_id, seq, error"}
    recorded = ids(**columns)
    assert recorded
    capture.compact(path, decode={protocol: {}})
    (file,) = (path / "_decoded" / protocol).iterdir()
    alter(file, "capture_id", "decoded")
    assert ids(**columns) == ids() == ["decoded"] * len(recorded)
    # What it does not have is decoded.
    assert ids(payload=True) == recorded


@pytest.mark.parametrize("protocol", [known.name for known in protocols()])
def test_spark_reads_what_was_decoded_by_itself(session, every_protocol, tmp_path, protocol):
    """VARIANTs too, the fields of which are columns."""
    path = shutil.copytree(every_protocol, tmp_path / "copy")
    expected = read(session, path, protocol=protocol, decode=True)
    variants = [field.name for field in expected.schema if field.dataType.simpleString() == "variant"]
    as_json = ["seq", *(f"to_json({name}) as {name}" for name in variants)]
    rows = rows_of(expected.selectExpr(*as_json))
    capture.compact(path, decode={protocol: {}}, shred=True)
    by_itself = session.read.parquet(f"{path}/_decoded/{protocol}")
    assert by_itself.schema.simpleString() == expected.schema.simpleString()
    assert rows_of(by_itself.selectExpr(*as_json)) == rows
    if protocol == "cdtp":
        run = "variant_get(tags, '$.run', 'bigint') as run"
        assert rows_of(by_itself.selectExpr("seq", run)) == rows_of(expected.selectExpr("seq", run))


def test_captures_of_older_and_newer_versions_are_one_table(session, add, tmp_path):
    """A column that one does not have is null, one that is not known here is left out."""
    runs = tmp_path / "runs"
    old = again(copied("without-n-head", runs / "old"))
    newer = add("runs/newer", release("Det", 0, 1, b"x"))
    (segment,) = capture.open(newer).segments
    table = pyarrow.parquet.read_table(segment)
    pyarrow.parquet.write_table(table.append_column("n_tail", [[7] * table.num_rows]), segment, compression="zstd")
    rows = read(session, runs, recursive=True)
    assert rows.columns == spark.capture_schema().names
    assert rows.count() == 2 * len(old) + table.num_rows
    assert rows.where("n_head IS NULL").count() == len(old)
    decoded = read(session, runs, recursive=True, protocol="cdtp", decode=True)
    cdtp = sum(row["protocol"] == "cdtp" for row in old)
    assert decoded.count() == 2 * cdtp + 1


@pytest.mark.parametrize("protocol", [*(known.name for known in protocols()), "*"])
def test_every_column_says_what_it_is(session, every_protocol, protocol):
    options = {"payload": True} if protocol != "*" else {}
    rows = read(session, every_protocol, protocol=protocol, decode=True, **options)
    comments = {field.name: field.metadata.get("comment") for field in rows.schema}
    assert all(comments.values()), comments
    decoded = spark.decode(read(session, every_protocol), protocol, **options)
    assert {field.name: field.metadata.get("comment") for field in decoded.schema} == comments


def comments(schema):
    return {field.name: field.metadata.get("comment") for field in schema}


def test_every_column_of_rows_says_what_it_is(session, every_protocol):
    rows = read(session, every_protocol).schema
    read(session, every_protocol).createOrReplaceTempView("rows_of_all")
    said = {row.col_name: row.comment for row in session.sql("DESCRIBE rows_of_all").collect()}
    assert said == comments(rows)
    assert all(said.values()), said
    plain = [(field.name, field.dataType, field.nullable) for field in spark.capture_schema()]
    assert [(field.name, field.dataType, field.nullable) for field in rows] == plain
    some = read(session, every_protocol, columns="payload, seq").schema
    assert comments(some) == {name: said[name] for name in ("payload", "seq")}


@pytest.mark.parametrize("table", ["runs", "gaps", "pair_requests", "topics", "contents", "rollout"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_every_column_of_what_belongs_together_says_what_it_is(session, every_protocol, table, is_stream):
    source = session.readStream if is_stream else session.read
    rows = source.format("trunkline").load(str(every_protocol))
    decoded = {"topics": "mc0", "contents": "mtl", "rollout": "cdt"}
    if table in decoded:
        rows = spark.decode(rows, decoded[table])
    said = comments(getattr(spark, table)(rows).schema)
    assert all(said.values()), said


def test_comments_are_those_of_the_tables_that_are_made(session, add, tmp_path):
    path = add("c", release("Det", 0, 1, b"x"))
    table = read(session, path, protocol="cdtp", decode=True, tags="run bigint").withColumnRenamed("endpoint", "e")
    table.write.parquet(str(tmp_path / "table"))
    session.read.parquet(str(tmp_path / "table")).createOrReplaceTempView("kept")
    said = {row.col_name: row.comment for row in session.sql("DESCRIBE kept").collect()}
    assert (said["tag_run"], said["sender"]) == ("The tag run", "The sender's name")


def test_all_protocols_are_one_table(session, every_protocol):
    together = read(session, every_protocol, protocol="*", decode=True)
    of_rows = spark.decode(read(session, every_protocol), "*")
    assert together.schema.simpleString() == of_rows.schema.simpleString()
    assert rows_of(together) == rows_of(of_rows)
    counted = {row.protocol: row["count"] for row in together.groupBy("protocol").count().collect()}
    assert counted == {
        known.name: read(session, every_protocol, protocol=known.name, decode=True).count() for known in protocols()
    }
    names = together.where("protocol = 'mc0'").selectExpr("variant_get(rest, '$.topic', 'string') AS topic")
    mc0 = read(session, every_protocol, protocol="mc0", decode=True)
    assert sorted(map(str, names.collect())) == sorted(map(str, mc0.select("topic").collect()))
    # Rows of other protocols cannot be decoded.
    others = read(session, every_protocol).selectExpr("* EXCEPT (protocol)", "'foo' AS protocol")
    assert spark.decode(others, "*").count() == 0
    some = read(session, every_protocol, protocol="*", decode=True, columns="type,seq", type="put", direction="in")
    assert {row.type for row in some.collect()} == {"PUT"}


def test_columns_are_named_and_no_other_is_read(session, recorded):
    names = ["received_at", "sender", "seq", "tag_run"]
    options = {"protocol": "cdtp", "decode": True, "tags": "run long", "columns": ", ".join(names)}
    some = read(session, recorded, **options)
    assert some.columns == names
    everything = read(session, recorded, protocol="cdtp", decode=True, tags="run bigint")
    assert some.orderBy("seq").collect() == everything.select(names).orderBy("seq").collect()
    assert read(session, recorded, columns="n_bytes,seq").columns == ["n_bytes", "seq"]


def test_messages_are_selected_as_the_commands_do(session, add):
    path = add("c", *(release(name, 0, at, b"x") for at in range(4) for name in ("Det.a", "Det.b")))
    add("c", release("Det.a", 1, 0, b"\x80"), release("Det.a", 0, 9, b"x"), batch("Det.a", 0, [{}, {}]))
    decoded = {"protocol": "cdtp", "decode": True}
    for options, selection in (
        ({"sender": "Det.b"}, {"sender": "Det.b"}),
        ({"where": "sequence > 2"}, {"where": "sequence > 2"}),
        ({"run": "1"}, {"run": 1}),
        ({"type": "bor"}, {"type": "bor"}),
        ({"until": "2023-11-14T22:13:20.000001"}, {"until_ns": AT + 1000}),
        ({"since": "2024-01-01"}, {"since_ns": AT + 10**17}),
    ):
        wanted = capture.open(path).decode("cdtp", selection=capture.Selection(**selection)).read_all()
        found = read(session, path, **decoded, **options)
        assert sorted((row.seq, row.record) for row in found.collect()) == sorted(
            zip(*(wanted[name].to_pylist() for name in ("seq", "record")), strict=True)
        ), options
        # Of rows that are not decoded, those with any such message.
        rows = read(session, path, **options)
        assert {row.seq for row in rows.collect()} == {*wanted["seq"].to_pylist()}, options


def test_the_names_of_tags_may_be_anything(session, add):
    path = add("c", release("Det", 0, 1, b"x", tags={"mode, of run": "a", "päth.x": 2}))
    tags = "`mode, of run` string, `päth.x` bigint"
    (row,) = read(session, path, protocol="cdtp", decode=True, tags=tags).collect()
    assert (row["tag_mode, of run"], row["tag_päth.x"]) == ("a", 2)


def test_a_folder_of_captures_is_read_and_what_is_none_is_passed_over(session, add, tmp_path):
    runs = tmp_path / "runs"
    for name in ("runs/one", "runs/deep/two"):
        add(name, release("Det", 0, 1, b"x"))
    # One that has only begun, one that is hidden, and what is none.
    (runs / "begun" / "_capture").mkdir(parents=True)
    add("runs/.hidden", release("Det", 0, 1, b"x"))
    (runs / "notes").mkdir()
    assert read(session, runs, recursive=True).count() == 2
    assert read(session, runs / "begun").count() == 0
    several = session.read.format("trunkline").load([str(runs / "one"), str(runs / "deep/two")])
    assert several.count() == 2
    shutil.copytree(runs / "one", runs / "copy")
    with pytest.raises(PySparkException, match="hold the same capture"):
        read(session, runs, recursive=True)


def test_paths_may_be_patterns(session, add, tmp_path):
    for at, name in enumerate(("run1", "run2", "other3", "deep/run4", ".run5", "[6]")):
        add(f"runs/{name}", *(release("Det", 0, one, b"x") for one in range(2**at)))
    # What is none is passed over.
    (tmp_path / "runs" / "run0").mkdir()
    (tmp_path / "runs" / "run9").touch()
    runs = tmp_path / "runs"
    for pattern, count in (
        ("run*", 3),
        ("run?", 3),
        ("*[2-3]", 6),
        ("*[^1-2]", 4 + 32),
        ("{run1,other3}", 5),
        ("{deep/run4,run{1,2}}", 11),
        ("*/run4", 8),
        (".run*", 16),
        ("[6]", 32),
    ):
        assert read(session, runs / pattern, columns="seq").count() == count, pattern
    assert read(session, runs / "{deep,run1}", recursive=True).count() == 9
    assert session.read.format("trunkline").load([str(runs / "run*"), str(runs / "other3")]).count() == 7


def test_a_large_segment_is_divided_among_tasks_in_order(session, tmp_path):
    path = tmp_path / "large"
    importing = Import(path, segment_bytes=1 << 30)
    for number in range(64):
        importing.append(AT + number, release("Det", 0, number, bytes(4 << 20)))
    importing.commit()
    assert len(published(path)) == 1
    for options, least, most in (
        ({"maxPartitionBytes": 1 << 40}, 3, 5),
        ({"minPartitions": 3}, 3, 5),
        ({"maxPartitionBytes": 70 << 20}, 4, 5),
        ({"minPartitions": 100}, 4, 5),
    ):
        where = {"columns": "seq,sequence", "where": "sequence != 7"}
        rows = read(session, path, protocol="cdtp", decode=True, **where, **options)
        assert least <= rows.rdd.getNumPartitions() <= most, options
        found = [(row.task, row.seq) for row in rows.withColumn("task", spark_partition_id()).collect()]
        assert [seq for _, seq in sorted(found)] == [*range(7), *range(8, 64)]
        for task in {task for task, _ in found}:
            seqs = [seq for one, seq in found if one == task]
            assert seqs == sorted(seqs)
    assert read(session, path, minPartitions=4, columns="seq").count() == 64


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocl": "cdtp"}, "there is no option 'protocl': did you mean 'protocol'"),
        ({"protocl": "cdtp", "decode": True}, "there is no option 'protocl': did you mean 'protocol'"),
        ({"protocol": "cdpt"}, "option protocol: there is no 'cdpt': did you mean 'cdt'"),
        ({"decode": "yes"}, "option decode: there is no 'yes': expected one of true, false"),
        ({"decode": True}, "option decode: name the protocol as well"),
        ({"tags": "json"}, "option tags: is for decoding cdtp: set decode to true"),
        ({"protocol": "dcp", "decode": True, "tags": "json"}, "option tags: is for cdtp, not for dcp"),
        ({"protocol": "cdtp", "decode": True, "tags": "run"}, "option tags: expected a name and a type"),
        ({"protocol": "cdtp", "decode": True, "tags": "run number"}, "number"),
        ({"protocol": "cdtp", "decode": True, "accept": "S,X"}, "X"),
        ({"protocol": "cdtp", "decode": True, "columns": "sendr"}, "no column sendr: did you mean 'sender'"),
        ({"columns": "sender"}, "option columns: no column sender"),
        ({"where": "sequnce > 2"}, "sequnce"),
        ({"since": "yesterday"}, "option since: takes a time such as"),
        ({"peer": "0xg"}, "option peer: takes text, or 0x and hexadecimal digits"),
        ({"since": "0001-01-01"}, "option since: takes a time from 1677-09-22"),
        ({"until": "9" * 400 + "d"}, "option until: takes a time from 1677-09-22"),
        ({"maxFilesPerTrigger": "2"}, "there is no option 'maxfilespertrigger': it is maxSegmentsPerTrigger here"),
        ({"recursiveFileLookup": "true"}, "it is recursive here"),
        ({"minPartitions": "0"}, "option minPartitions: expected a whole number from 1"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger: expected a whole number from 1 to 9223372036854775807"),
        ({"maxRowsPerTrigger": "²"}, "option maxRowsPerTrigger: expected a whole number from 1"),
        ({"maxBytesPerTrigger": "9" * 19}, "option maxBytesPerTrigger: expected a whole number from 1"),
        ({"maxSegmentsPerTrigger": "9" * 5000}, "option maxSegmentsPerTrigger: expected a whole number from 1"),
        ({"columns": "seq,seq"}, "option columns: 'seq' is named twice"),
        ({"columns": ""}, "option columns: a name is missing in ''"),
        ({"protocol": "cdtp", "decode": True, "columns": "sender,,type"}, "option columns: a name is missing"),
        ({"startingOffsets": "[" * 100_000}, "option startingOffsets: expected earliest"),
        ({"startingOffsets": "first"}, "option startingOffsets: expected earliest, latest or JSON"),
        ({"startingOffsets": '{"a": {"segment": -1}}'}, "option startingOffsets: expected earliest"),
        ({"protocol": "*", "decode": True, "sender": "D"}, "sender: looks into messages of one protocol"),
        ({"protocol": "*", "decode": True, "tags": "json"}, "option tags: is for cdtp, not for \\*"),
        ({"sender": "Det", "service": "echo"}, "no message is of both cdtp and dcp"),
    ],
)
def test_wrong_options_are_refused_at_load(session, recorded, options, words):
    with pytest.raises(PySparkException, match="(?s)" + words.replace("(", r"\(")):
        read(session, recorded, **options)


def test_wrong_paths_are_refused_at_load(session, recorded, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for path, words in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "file", "is a file: name the directory of the capture"),
        (tmp_path / "empty", "is no capture"),
        (os.path.dirname(recorded), "is one: set the option recursive to true"),  # noqa: PTH120 - text
        ("s3x://lab/runs", "s3x://lab/runs: "),
        (f"{recorded}/0000000000.parquet", f"is a file of a capture: name its directory, {recorded}"),
        (tmp_path / "run*", "matches no folder: a capture is named by its directory"),
        (tmp_path / "{a,b}", "matches no folder"),
        (tmp_path / "e*", "matches no capture: .*empty is none"),
    ):
        with pytest.raises(PySparkException, match=words):
            read(session, path)
    with pytest.raises(PySparkException, match="name the capture"):
        session.read.format("trunkline").load()
    with pytest.raises(
        PySparkException, match="has seq bigint where the source has capture_id string: leave the schema out"
    ):
        session.read.format("trunkline").schema("seq bigint").load(recorded).count()


def test_a_folder_without_any_capture_is_said(tmp_path, caplog, add):
    def warned(path):
        caplog.clear()
        TrunklineSource({"path": str(path), "recursive": "true"}).schema()
        return caplog.messages

    (tmp_path / "docs").mkdir()
    assert warned(tmp_path / "docs") == [f"{tmp_path}/docs: there is no capture in it yet, at any depth"]
    path = add("c", release("Det", 0, 1, b"x"))
    assert warned(path.parent) == warned(path) == []


def test_a_task_has_the_segments_of_many_captures_each_in_order(session, add, tmp_path):
    for number in range(40):
        for at in (1, 2):
            add(f"many/{number}", *(release(f"Det.{number}", 0, 3 * at + more, b"x") for more in range(3)))
    rows = read(session, tmp_path / "many", recursive=True)
    assert rows.rdd.getNumPartitions() < 10
    found = [(row.capture_id, row.seq) for row in rows.coalesce(1).collect()]
    assert len(found) == 240
    for capture_id in {capture_id for capture_id, _ in found}:
        assert [seq for one, seq in found if one == capture_id] == [*range(6)]
    with_sequence = {"protocol": "cdtp", "decode": True, "where": "sequence > 7"}
    assert read(session, tmp_path / "many", recursive=True, **with_sequence).count() == 40


def test_that_all_is_of_another_protocol_is_said(caplog, add):
    def warned(**options):
        caplog.clear()
        TrunklineSource({"path": str(path.parent), "recursive": "true", **options}).schema()
        return caplog.messages

    path = add("c", release("Det", 0, 1, b"x"))
    add("d", release("Det", 0, 1, b"x"))
    told = ["none of 1 row is dcp: name the protocol that was recorded, cdtp"] * 2
    assert warned(protocol="dcp") == warned(protocol="dcp", decode="true") == told
    assert warned(protocol="cdtp") == warned(protocol="*", decode="true") == warned() == []


def test_nothing_is_inserted_into_a_view_of_messages(session, recorded):
    options = f"path '{recorded}', protocol 'cdtp', decode 'true'"
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW decoded USING trunkline OPTIONS ({options})")
    with pytest.raises(PySparkException, match="nothing is inserted into a view of a capture"):
        session.sql("INSERT INTO decoded SELECT * FROM decoded")


def test_a_relative_path_is_of_the_directory_that_spark_began_in(session, recorded):
    # As every path of Spark is: that of this process may have changed since.
    relative = os.path.relpath(recorded, session._jvm.System.getProperty("user.dir"))
    assert read(session, relative).count() == read(session, recorded).count()


def test_a_segment_that_goes_before_it_is_read_is_an_error_that_names_it(session, add):
    path = add("c", release("Det", 0, 1, b"x"))
    add("c", release("Det", 0, 2, b"x"))
    rows, lenient = read(session, path), read(session, path, failOnDataLoss=False)
    assert rows.count() == lenient.count() == 2
    first, _ = capture.open(path).segments
    hidden = first.rename(first.with_name(".hidden"))
    with pytest.raises(PySparkException, match="1 segment was deleted before being read: 0"):
        rows.count()
    assert lenient.count() == 1
    hidden.rename(first)


def test_malformed_messages_are_treated_as_the_mode_says(session, add):
    path = add("c", [b"\xc1"], release("Det", 0, 1, b"x"))
    options = {"protocol": "cdtp", "decode": True}
    kept = read(session, path, **options).orderBy("seq").collect()
    assert [(row.error is None, row.sender) for row in kept] == [(False, None), (True, "Det")]
    assert read(session, path, mode="dropmalformed", **options).count() == 1
    with pytest.raises(PySparkException, match=r"header"):
        read(session, path, mode="FAILFAST", **options).count()
    assert json.loads(rows_of(read(session, path))[0])["error"]


def test_sql_reads_it_as_a_table_of_options(session, recorded):
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW recorded USING trunkline OPTIONS (path '{recorded}', protocol 'cdtp', decode 'true')"
    )
    assert session.sql("SELECT count(DISTINCT sender) AS n FROM recorded").first().n > 0
    with pytest.raises(AnalysisException):
        session.sql(f"SELECT * FROM trunkline.`{recorded}`")
    # Such a table could not be read: Spark passes its reader no options, and so no path.
    with pytest.raises(AnalysisException, match=r"of a table.*CREATE TEMPORARY VIEW name USING trunkline"):
        session.sql(f"CREATE TABLE recorded USING trunkline OPTIONS (path '{recorded}')")


def test_a_builder_of_ones_own_is_configured_for_any_master(session):
    from pyspark.sql import SparkSession

    builder = spark.configure(SparkSession.builder)
    assert isinstance(builder, SparkSession.Builder)
    # A session of ours has the same.
    assert builder._options
    for name, value in builder._options.items():
        assert session.conf.get(name) == value
