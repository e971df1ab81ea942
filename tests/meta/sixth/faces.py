"""Finds the made-up protocol in every face of the package; `native.py` runs it."""

import sys
import typing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from tools import json_lines, options
from typer.testing import CliRunner

import trunkline
from trunkline import _native, capture, report, spark
from trunkline._native.capture import Import
from trunkline.capture.selecting import protocols_of
from trunkline.cli.app import app
from trunkline.report.sections import SECTIONS
from trunkline.spark._comments import ROWS, comment

root, folder = map(Path, sys.argv[2:])
Message = _native.sixth.Message


def said(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


# The package.
assert Path(trunkline.__file__).is_relative_to(root)
assert "sixth" in trunkline.__all__
assert trunkline.sixth.Message is Message

# Captures. Rust records no protocol that it does not know.
importing = Import(folder / "capture")
importing.append(1, [b"dear you"], protocol="cdtp", direction="in")
importing.commit()
for segment in (folder / "capture").glob(capture.reading.SEGMENTS):
    table = parquet.read_table(segment)
    for name, value in (("protocol", "sixth"), ("error", None)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array([value], pa.string()))
    parquet.write_table(table, segment, compression="zstd")
opened = capture.open(folder / "capture")
assert Message in typing.get_args(capture.AnyMessage)
assert [message.letter for message in opened] == ["dear you"]
assert [message.letter for message in opened.messages("sixth")] == ["dear you"]
assert len(typing.get_overloads(capture.Capture.messages)) == len(SECTIONS)

# Selections.
assert protocols_of(capture.Selection(type="letter")) == ["sixth"]
assert len([*opened.rows(capture.Selection(protocol="sixth", type="LETTER"))]) == 1
with pytest.raises(trunkline.LocalProtocolError, match=r"one of cdtp, .*, sixth, not 'smtp'"):
    capture.Selection(protocol="smtp")

# The command line.
assert "sixth: letters." in said("--help")
assert said("sixth", "post", "hello") == "posted hello\n"
assert "dear you LETTER" in said("capture", "cat", folder / "capture")
assert said("capture", "cat", folder / "capture", "--format", "{letter}!") == "dear you!\n"
assert [line.event for line in json_lines.LINES["sixth post"]] == ["posted"]

assert "sixth" in said("conform", "--help")
assert "SIXTH-01     pass    A node has an address" in said("conform", "sixth", "here")

# The report.
assert SECTIONS["sixth"] is report.SixthSection is spark.SixthSection
assert "SixthSection" in report.__all__

# Spark.
assert {"from_sixth", "to_sixth", "SixthSection"} <= set(spark.__all__)
assert "sixth" in spark.pandas_udfs.__all__
assert comment("letter", "sixth") == "What it says"
assert comment("protocol", ROWS).endswith(" or sixth")
for function in (spark.from_sixth, spark.to_sixth, spark.pandas_udfs.sixth):
    assert function.evalType, "it is no function of values"

# The tables of options, from which tests, metrics and the site have the roles.
assert "sixth.Node" in {f"{role.protocol}.{role.name}" for role in options.roles()}
assert "### sixth.Node" in options.tables()
