"""Each fault of a small implementation is named by the id of its requirement, and nothing else is."""

import importlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from trunkline.conform.checks import Limits
from trunkline.conform.checks import conform as run

KINDS = {
    "cdtp": "Sender",
    "chirp": "Beacon",
    "dcp": "Broker",
    "mc0": "Middleware",
    "mtl": "Server",
    "cdt": "Target",
}


def kind_of(protocol):
    return getattr(importlib.import_module(f"peers.faulty.{protocol}"), KINDS[protocol])


@pytest.mark.parametrize("protocol", KINDS)
def test_every_fault_is_named(conform, ids, protocol):
    kind = kind_of(protocol)

    def failed(fault):
        with kind(fault) as peer:
            return ids(conform(protocol, peer.subject), "fail")

    # They wait more than they work.
    with ThreadPoolExecutor(16) as together:
        found = dict(zip(kind.FAULTS, together.map(failed, kind.FAULTS), strict=True))
    assert found == kind.FAULTS


@pytest.mark.parametrize("protocol", KINDS)
def test_nothing_is_named_without_a_fault(conform, ids, protocol):
    with kind_of(protocol)() as peer:
        results = conform(protocol, peer.subject)
    assert ids(results, "fail") == set()
    assert len(ids(results, "pass")) > 2 * len(ids(results, "skip"))


@pytest.mark.parametrize("protocol", KINDS)
def test_there_are_several_faults_of_different_requirements(protocol):
    faults = kind_of(protocol).FAULTS
    assert len(set().union(*faults.values())) >= 4
    assert len(faults) >= 6


def test_a_failed_check_says_what_was_sent_what_came_and_what_is_wanted(conform):
    with kind_of("dcp")("drops empty data") as broker:
        result = conform("dcp", broker.subject, ["DCP-25"])["DCP-25"]
    sent = [message for message in result.sent if message.peer == "client"][-1].frames
    assert sent[-2:] == [b"", b""] or sent[-1] == b""
    assert sent[:3] == [b"", b"DGBX\x01", b"\x04"]
    assert result.received[-1].peer == "worker"
    assert "empty ones included" in result.wanted
    assert "∅ · ∅" in result.reason


def test_a_peer_that_ends_in_a_check_fails_that_alone(conform, ids):
    with kind_of("dcp")("ends at a reply without a client") as broker:
        results = conform("dcp", broker.subject)
    assert ids(results, "fail") == {"DCP-27"}
    later = [*results][[*results].index("DCP-27") + 1 :]
    assert later
    assert {results[name].reason for name in later} == {"it does not answer any more since DCP-27"}


def test_what_needs_a_failed_requirement_is_skipped(conform, ids):
    with kind_of("dcp")("confirms with the type alone") as broker:
        results = conform("dcp", broker.subject)
    assert results["DCP-06"].reason == "it needs DCP-14, which is not met"
    assert {"DCP-06", "DCP-26", "DCP-01"} <= ids(results, "skip")


def test_when_the_time_is_over_the_rest_is_skipped():
    suite = importlib.import_module("trunkline.conform.dcp").SUITE
    limits = Limits(20)
    with kind_of("dcp")() as broker:
        results = run(suite, broker.subject, (), limits)
        first = next(results)
        limits.end()
        rest = [*results]
    assert first.result == "pass"
    assert {each.result for each in rest} == {"skip"}
    # But for one that takes no time.
    assert {each.reason for each in rest if each.id != "DCP-43"} == {"the time is over: --seconds gives more"}


def test_more_bytes_than_all_may_cost_end_it():
    suite = importlib.import_module("trunkline.conform.dcp").SUITE
    with kind_of("dcp")() as broker:
        results = [*run(suite, broker.subject, (), Limits(20, 100_000))]
    # Bodies of 256 KiB come back in one check.
    assert [each.id for each in results if each.result == "fail"] == ["DCP-13"]
    rest = results[[each.id for each in results].index("DCP-13") + 1 :]
    assert {each.reason for each in rest} == {"it sent more than 64 MiB"}
