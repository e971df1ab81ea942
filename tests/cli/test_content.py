"""What commands show of messages."""

import json
import re
import time
import tracemalloc
from datetime import UTC, datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from peers.commands import release, spec
from trunkline import cdt, cdtp, dcp, mc0, msgpack, mtl
from trunkline.cli.terminal.content import Content, MessageView, Printer, _Template, text_of
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.streaming import Lines

TAGS = st.dictionaries(
    st.text(max_size=5),
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.lists(st.integers(0, 3), max_size=2)
    | st.builds(msgpack.Timestamp, st.integers(0, 2**33), st.just(5)),
    max_size=4,
)
FRAMES = st.lists(st.binary(max_size=9) | st.text(max_size=9).map(str.encode), max_size=3)


@given(
    name=st.text(max_size=9), tags=TAGS, payload=FRAMES, variant=st.sampled_from("SAB2"), limit=st.none() | st.just(3)
)
def test_lines_of_json_are_those_of_events(name, tags, payload, variant, limit):
    given = {"timestamp_ns": 7} if variant in "SA" else {}
    given |= {"sequence": 2**63} if variant != "S" else {}
    message = cdtp.Message(name, payload or [b""], variant=variant, tags=tags, **given)
    line = Lines(limit).of(message)
    if line is None:
        assert not all(isinstance(value, str | int | None) for value in tags.values())
        return
    printed = []
    output = Output(json=True)
    output._write = printed.append
    Content(payload_limit=limit).printer(output).event(MessageView.of(message))
    assert [line] == printed


def test_names_that_strangers_choose_cost_nothing():
    lines = Lines(None)
    tracemalloc.start()
    try:
        for number in range(2000):
            name = f"{number:x}" + "x" * 100_000 * (number % 2)
            assert f'"sender": "{name}", ' in lines.of(cdtp.Message(name, b"", variant="B"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


@pytest.mark.parametrize(
    ("payload", "limit", "shown"),
    [
        ([b"run 7 begins"], 64, "run 7 begins"),
        ([b"a\tb\n"], 64, "a\\tb\\n"),
        ([b""], 64, ""),
        ([b"\x1b[2J"], 64, "0x1b5b324a (4 B)"),
        ([b"\xff" * 3], 2, "0xffff… (3 B)"),
        (["äö".encode()], 3, "ä… (4 B)"),
        ([b"a", b"b"], 64, "a | b"),
        ([b"x"] * 10, 64, "x | x | x | x | x | x | x | x | … (10 frames)"),
    ],
)
def test_payloads_are_text_or_digits(payload, limit, shown):
    assert text_of(payload, limit) == shown


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (cdtp.Message("Det", b"x", variant="B", type="DAT", sequence=4, tags={"a": 1}), 'Det DAT 4 {"a": 1}'),
        (
            cdtp.Message("Det", msgpack.encode({"gain": 2}), variant="B", type="BOR", sequence=0, tags={"a": 1}),
            'Det BOR 0 {"gain": 2}',
        ),
        (cdtp.Message("Det", variant="2", type="EOR", sequence=1, tags={"run_id": "r"}), 'Det EOR 1 {"run_id": "r"}'),
        (dcp.decode([b"", b"DGBX\x01", b"\x01", b"echo"]), "echo register"),
        (mc0.decode([b"", b"PUT", b"TOPIC", b"runs", b"", b"x"]), "runs PUT"),
        (mtl.Command("Queue.Info", {"name": "jobs"}), 'Queue.Info command {"name": "jobs"}'),
        (mtl.Reply(404, {"text": "no"}), '404 reply {"text": "no"}'),
    ],
)
def test_each_protocol_has_a_line(message, line):
    assert MessageView.of(message).line == line


def test_a_line_of_configurations():
    message = cdt.ConfigUpdated(
        app_version_name="app", endpoint_id="e", config_id="c", correlation_id="1", timestamp_ms=5
    )
    view = MessageView.of(message)
    assert view.line == 'app/e ConfigUpdated {"config_id": "c"}'
    assert view.fields["timestamp_ms"] == 5


@pytest.mark.parametrize(
    ("template", "why"),
    [("{nothing}", "there is no {nothing}"), ("{sender", "expected '}'"), ("{payload.__class__}", "there is no")],
)
def test_a_format_is_looked_at_before_anything_is_received(template, why):
    with pytest.raises(typer.BadParameter, match=why):
        Content(template=template).printer(Output(json=False))


def test_ways_to_print_exclude_each_other():
    with pytest.raises(typer.BadParameter, match="exclude each other"):
        Content(raw=True, template="{payload}").printer(Output(json=False))
    with pytest.raises(typer.BadParameter, match="exclude each other"):
        Content(raw=True).printer(Output(json=True))


def received(run, push, *options):
    messages = [release("Det", 0, 1, b"one", tags={"run": 7}), release("Det", 0, 2, b"\x00\x01")]
    return run("cdtp", "receive", "--connect", push.endpoint, "--count", "2", *options, feed=(push, messages))


def test_a_format_has_fields_in_their_places(run, push):
    out, _ = received(run, push, "--format", "{sequence:>3} {sender}\\t{tags} {payload} {payload_bytes} {service}")
    assert out == '  1 Det\t{"run": 7} one 3 -\n  2 Det\t{} 0x0001 (2 B) 2 -\n'


def test_a_format_that_does_not_fit_is_an_error(run, push):
    _, err = run(
        "cdtp", "receive", "--connect", push.endpoint, "--format", "{sender:d}", feed=(push, [spec("D")]), returncode=1
    )
    assert "--format: {sender:d}" in err


def test_a_body_is_what_the_message_has_under_that_name_or_its_payload():
    template = _Template("{body}")
    assert (
        template.fill(MessageView.of(mc0.decode([b"", b"PUT", b"TOPIC", b"runs", b"", b"x", b"y"])), {}, None)
        == "x | y"
    )
    assert template.fill(MessageView.of(mtl.Command("Queue.Info", {"name": "jobs"})), {}, None) == '{"name": "jobs"}'


def test_what_comes_in_now_is_received_now(run, push):
    before = time.time_ns()
    out, _ = received(run, push, "--format", "{received_at_ns} {received_at}")
    for line in out.splitlines():
        ns, at = line.split()
        assert before <= int(ns) <= time.time_ns()
        seconds = datetime.fromisoformat(at[:26]).replace(tzinfo=UTC).timestamp()
        assert abs(seconds - int(ns) / 1e9) < 1e-5


def test_raw_payloads_are_alone(run, push):
    out, _ = received(run, push, "--raw")
    assert out == "one\x00\x01"


def test_payloads_are_cut(run, push):
    out, _ = received(run, push, "--payload-limit", "1", "--json")
    first, second = (json.loads(line) for line in out.splitlines()[1:3])
    assert (first["payload"], first["payload_sizes"]) == (["o"], [3])
    assert (second["payload"], second["payload_sizes"]) == ([{"base64": "AA=="}], [2])


def test_a_format_names_members_of_what_has_any():
    template = _Template("{tags.run} {tags.at.x} {config.a} {tags.none:>3}")
    view = MessageView("", "a", {"tags": {"run": 7, "at.x": "north"}, "config": None}, {}, [])
    assert template.fill(view, {}, None) == "7 north -   -"
    for bad in ("{tags.}", "{sender.a}", "{nothing.a}"):
        with pytest.raises(typer.BadParameter, match=r"tags\.NAME"):
            _Template(bad)


def test_what_is_absent_is_no_number():
    template = _Template("{sequence:05d};{tags.run:5.1f};")
    assert template.fill(MessageView("", "a", {"sequence": 7, "tags": {"run": 2}}, {}, []), {}, None) == "00007;  2.0;"
    assert template.fill(MessageView("", "a", {"sequence": None, "tags": {}}, {}, []), {}, None) == ";;"
    with pytest.raises(typer.BadParameter, match=r"leave out !r"):
        _Template("{sender!r}")


@pytest.fixture
def terminal(monkeypatch):
    """Standard output is a terminal of 80 columns; gives what is printed."""
    printed = []
    monkeypatch.setattr("trunkline.cli.terminal.output.on_terminal", lambda: True)
    monkeypatch.setattr("trunkline.cli.terminal.content.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(Output, "line", lambda _, text: printed.append(text))
    return printed


@pytest.mark.parametrize("sender", ["Det", "Detector.with.a.long.name", "検出器.一号"])
def test_a_payload_has_its_part_of_a_terminal(terminal, sender):
    printer = Printer(Output(json=False), None, None, raw=False)
    message = cdtp.Message(
        sender, b"p" * 60, variant="B", type="DAT", sequence=4, tags={"run": 7, "channel": 12, "x": 1}
    )
    start = f"{1:>6} 11-25 03:16:15.000 in  "
    printer.show(MessageView.of(message), {}, start)
    (line,) = terminal
    assert cell_len(line) == 80
    head, payload = re.fullmatch(r"(.* DAT 4 )[^p]*(p+)…", line).groups()
    assert len(payload) + 1 >= (80 - cell_len(head)) // 3
    assert "……" not in line
    printer.show(
        MessageView.of(cdtp.Message("D", b"hi", variant="B", type="DAT", sequence=4, tags={"run": 7, "x": 1})),
        {},
        start,
    )
    assert terminal[1].endswith('D DAT 4 {"run": 7, "x": 1} hi')


def test_tables_and_lines_count_cells(terminal):
    output = Output(json=False)
    output.table(("sender", "messages"), [("検出器.一号", 7), ("Det", 12)])
    assert len({cell_len(line) for line in terminal}) == 1
    assert {line.rpartition(" ")[2] for line in terminal} == {"messages", "7", "12"}
    output.fitted("検" * 50)
    assert terminal[-1] == "検" * 39 + "…"
