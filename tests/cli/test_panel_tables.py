"""What is in the panel of a role, at any width of its terminal."""

import itertools
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from trunkline._metrics.counters import NO_LATENCIES
from trunkline.cdtp import ReceiverStats, RecorderStats
from trunkline.cdtp.receiver import SenderCount
from trunkline.chirp import BeaconStats
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.panel import _Panel
from trunkline.cli.terminal.rates import Rates
from trunkline.dcp import BrokerStats
from trunkline.dcp.broker import ServiceStats
from trunkline.mc0 import MiddlewareStats
from trunkline.mc0.middleware import TopicStats
from trunkline.mtl import ServerStats
from trunkline.mtl.server import ResourceStats

SERVER = {"received": 25_000, "sent": 25_000, "dropped": {}, "bytes": 2_500_000, "peers": 2, "sessions": 2, "leases": 2}
SERVER |= {
    "refused": 0,
    "latency": NO_LATENCIES,
    "capture_lost": 0,
    "turned_away": 0,
    "connection_failures": {},
    "transport": "zmtp",
}
RECEIVER = {"received": 10, "accepted": 10, "dropped": {}, "bytes": 1000, "messages": 10, "queued": 0}
RECEIVER |= {"queued_bytes": 0, "duplicate_keys": 0, "chirp_dropped": 0, "senders": {}, "runs": {}, "capture_lost": 0}
RECEIVER |= {"refused": 0, "turned_away": 0, "connection_failures": {}, "transport": "zmtp"}
RECORDER = {"runs": {}, "deleted": 0, "deleted_unshipped": 0, "free_bytes": 9, "refused": 0, "turned_away": 0}
RECORDER |= {"connection_failures": {}, "transport": "zmtp"}


def queues(*names, confirmed=12_345):
    """A server with queues that are busy in every way."""
    counts = {"queued": 123_456, "queued_bytes": 1_700_000, "readers": 1, "writers": 1, "in_": 12_345, "out": 12_345}
    counts |= {"confirmed": confirmed, "rejected": 0, "redelivered": 3, "dead_lettered": 2, "expired": 7}
    return ServerStats(**SERVER, resources=[ResourceStats("/", "queue", name, **counts) for name in names])


def lines(stats, width, before=None, capture=None, passed_s=1.0):
    panel = _Panel(lambda: stats, "doing something", None, "received", capture)
    panel._before = before
    console = Console(width=width)
    with console.capture() as captured:
        console.print(panel._draw(stats, passed_s, 1.0))
    return captured.get().splitlines()


def table(shown):
    """The head and the rows of the table of a panel."""
    at = next(at for at, line in enumerate(shown) if line.startswith("resource "))
    return list(itertools.takewhile(lambda line: not line.startswith(("not shown", "and ")), shown[at:]))


@pytest.mark.parametrize("width", [30, 40, 60, 72, 80, 100, 120, 200])
def test_a_table_leaves_out_columns_and_cuts_no_number(width):
    shown = lines(queues("jobs", "検出器の長い名前の待ち行列"), width)
    head, *rows = table(shown)
    assert len(rows) == 2
    # Two spaces between columns, one within names of columns, numbers with units, and names of queues.
    columns = re.split(r" {2,}", head.strip())
    for row in rows:
        cells = re.split(r" {2,}", row.strip())
        assert len(cells) == len(columns)
        counts = dict(zip(columns[1:], cells[1:], strict=True))
        assert counts["in"] == "12,345"
        assert counts["/s"] == "0"
        assert counts.get("expired", "7") == "7"
        assert counts.get("queued bytes", "1.7 MB") == "1.7 MB"
        assert not any("…" in cell for cell in cells[1:])
    assert max(map(cell_len, shown)) <= width
    # What there was no room for is named below.
    notes = " ".join(shown[shown.index(rows[-1]) + 1 :])
    assert all((name in columns) != (name in notes) for name in ("queued", "readers", "writers"))


def test_what_is_most_important_stays_longest():
    assert [re.split(r" {2,}", table(lines(queues("jobs"), width))[0].strip())[1:] for width in (40, 80)] == [
        ["in", "expired", "/s"],
        ["queued", "queued bytes", "readers", "writers", "in", "expired", "/s"],
    ]
    assert "queue jobs" in table(lines(queues("jobs"), 80))[-1]


def test_names_are_shortened():
    name = "a.queue.with.a.name.that.is.long"
    assert re.match(r"/ queue …\S*long  ", table(lines(queues(name), 60))[-1])


def test_what_is_trunklines_own_is_in_no_table():
    services = [ServiceStats(name, 0, 1, 1, 2, 2, 0) for name in (b"trunkline.status", b"echo", b"trunkline.leaving")]
    counts = {"received": 2, "sent": 0, "dropped": {}, "bytes": 9, "peers": 1, "queued": 0, "lost": 0}
    broker = BrokerStats(
        **counts,
        latency=NO_LATENCIES,
        services=services,
        capture_lost=0,
        refused=0,
        turned_away=0,
        connection_failures={},
        transport="zmtp",
    )
    shown = "\n".join(lines(broker, 80))
    assert "echo" in shown
    assert "trunkline." not in shown
    del counts["lost"]
    counts |= {"clients": 1, "subscriptions": 1, "messages": 2, "topics": [TopicStats("trunkline.status", 1, 1, 1, 9)]}
    middleware = MiddlewareStats(
        **counts, capture_lost=0, refused=0, turned_away=0, connection_failures={}, transport="zmtp"
    )
    assert "topic" not in "\n".join(lines(middleware, 80))


def test_a_watcher_of_chirp_shows_what_it_has_found_and_not_what_it_says_itself():
    shown = "\n".join(lines(BeaconStats(received=7, ignored=4, dropped={}, sent=4, services=1), 80))
    assert "services 1" in shown
    assert "3 in all" in shown
    assert "connect" not in shown


def test_a_recorder_on_a_narrow_terminal_shows_the_free_disk(tmp_path):
    counts = {"received": 1_234_567, "accepted": 1_234_567, "dropped": {}, "bytes": 10**12, "recorded": 1_234_567}
    counts |= {"durable": 1_234_000, "segments": 1_234, "duplicate_keys": 0, "chirp_dropped": 0, "senders": {}}
    stats = RecorderStats(**counts, **RECORDER)
    line = next(line for line in lines(stats, 80, capture=tmp_path) if "recorded" in line)
    assert re.search(r" · [\d.]+ [kMGT]B free · recorded 1,234,567 · on disk 1,234,000 ", line)
    assert "accepted" not in line


def batched(wire, messages):
    return ReceiverStats(
        **RECEIVER
        | {"received": wire, "accepted": wire, "messages": messages, "senders": {"D": SenderCount(messages, 100, 0)}}
    )


def test_rates_are_of_messages_and_of_what_holds_them(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 20.0, 100.0, 110.0, *range(200, 300)])
    monkeypatch.setattr("trunkline.cli.terminal.rates.time.monotonic", clock.__next__)
    rates = Rates()
    assert rates.look(batched(10, 100))["messages_per_s"] == 10
    assert rates.look(batched(40, 900)) == {"messages_per_s": 80, "received_per_s": 3, "bytes_per_s": 0}
    Output(json=False).stats(batched(40, 900))
    assert capsys.readouterr().err.endswith("; 90 messages/s; 4 received/s; 100 B/s\n")
    shown = "\n".join(lines(batched(40, 900), 80, before=batched(10, 100), passed_s=10.0))
    assert "80 records/s  3 wire messages/s" in shown


def test_a_recorder_of_batches_counts_records(monkeypatch):
    counts = {"received": 4, "accepted": 3, "dropped": {}, "bytes": 9, "recorded": 4, "durable": 4, "segments": 0}
    counts |= {"duplicate_keys": 0, "chirp_dropped": 0, "senders": {"D": SenderCount(30, 9, 0)}}
    monkeypatch.setattr("trunkline.cli.terminal.rates.time.monotonic", iter([0.0, 2.0]).__next__)
    rates = Rates().look(RecorderStats(**counts, **RECORDER))
    assert (rates["messages_per_s"], rates["received_per_s"]) == (15, 2)


@pytest.mark.parametrize("width", range(30, 121, 5))
def test_lines_are_made_of_whole_parts(width, tmp_path):
    counts = {"received": 1_234_567, "accepted": 1_234_560, "dropped": {"bad_header": 1_234, "bad_tags": 5_678}}
    counts |= {"bytes": 10**12, "recorded": 1_234_567, "durable": 1_234_000, "segments": 1_234, "duplicate_keys": 0}
    counts |= RECORDER | {"chirp_dropped": 0, "senders": {}}
    panel = _Panel(lambda: None, "recording", 10_000_000, "received", tmp_path)
    panel._before = RecorderStats(**counts | {"received": 0})
    panel._messages.extend([1.0] * 60)
    console = Console(width=width)
    with console.capture() as captured:
        console.print(panel._draw(RecorderStats(**counts), 1.0, 1.0))
    shown = captured.get().splitlines()
    assert max(map(cell_len, shown)) <= width
    parts = r"(not connected|\d+ connections?|[\d.]+ [kMGT]B free|[a-z ]+ [\d,]+|…)"
    *_, rates, counters, bad, bar = shown
    assert re.search(r"1,234,567 messages/s(  |$| …)", rates)
    assert re.fullmatch(rf"{parts}(( ·)? {parts})*", counters)
    assert re.fullmatch(r"! ((5,678 bad_tags|1,234 bad_header)(, )?)+( …)?", bad)
    assert re.search(r" 1,234,567 of 10,000,000$", bar)
