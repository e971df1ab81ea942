"""A store in one file that two processes write to."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline import ConfigError, cdt
from trunkline.cdt import sqlite

WRITER = Path(__file__).with_name("store_writer.py")


def written(path, *, threads, count):
    """What is confirmed to two processes that begin at the same time, a dict for each of their threads."""
    with contextlib.ExitStack() as cleaning:
        writers = []
        for name in "ab":
            arguments = [sys.executable, str(WRITER), name, str(path), str(threads), str(count)]
            writer = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            cleaning.callback(writer.wait)
            cleaning.callback(writer.kill)
            writers.append(writer)
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("\n")
            writer.stdin.flush()
        ended = [writer.communicate(timeout=60)[0] for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0]
    return [result for text in ended for result in json.loads(text)]


@pytest.mark.req("CDT-38")
def test_nothing_confirmed_is_lost_and_versions_are_in_order(tmp_path):
    path = tmp_path / "configs.db"
    store = cdt.SqliteStore(path)
    store.put("app-1", "counter", b"0", content_type="text/plain", config_id=None)
    everything = written(path, threads=4, count=150)
    # Each content is put once, so an id has one place in the history of its endpoint.
    histories = {
        endpoint: [assignment.config_id for assignment in store.history("app-1", endpoint)]
        for endpoint in ("e-0", "e-1", "e-2", "counter")
    }
    for result in everything:
        for endpoint, config_id, content in result["put"]:
            assert store.get("app-1", endpoint, config_id).content.decode() == content
        for endpoint, history in histories.items():
            own = [history.index(config_id) for at, config_id, _ in result["put"] if at == endpoint]
            seen = [history.index(config_id) for at, config_id in result["seen"] if at == endpoint]
            assert own == sorted(own)
            # A replaced configuration is never seen again, whichever process replaced it.
            assert seen == sorted(seen)
            assert all(later >= mine for mine, later in zip(own, seen, strict=True))
    assert sum(map(len, histories.values())) == store.count()
    counted = [pair for result in everything for pair in result["counted"]]
    assert sorted(counted) == sorted(map(list, zip(histories["counter"], histories["counter"][1:], strict=False)))
    assert int(store.get("app-1", "counter").content) == len(counted)
    assert sum(result["outrun"] for result in everything) > 0
    store.close()


def test_two_who_make_the_file_at_the_same_time_agree(tmp_path):
    for number in range(10):
        assert written(tmp_path / f"{number}.db", threads=1, count=0)


def test_a_file_that_another_keeps_locked_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "_BUSY_S", 0.05)
    store = cdt.SqliteStore(tmp_path / "configs.db")
    config = store.put("app-1", "e-1", b"{}", content_type="text/plain", config_id=None).config
    other = sqlite3.connect(tmp_path / "configs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigError, match=r"another process writes to .*configs.db: try again") as raised:
        store.put("app-1", "e-1", b"[]", content_type="text/plain", config_id=None)
    assert raised.value.status_code == 503
    assert store.get("app-1", "e-1") == config
    other.execute("ROLLBACK")
    store.put("app-1", "e-1", b"[]", content_type="text/plain", config_id=None)
    other.close()
    store.close()
