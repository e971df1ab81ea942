"""Copies of a store that is in use, and what a server is made of as one file."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest

from peers.mtl import ANY
from trunkline import mtl
from trunkline.errors import LocalProtocolError
from trunkline.mtl.definitions import Definitions, back_up
from trunkline.mtl.users import Users


def elsewhere(function, *given, **named):
    """Calls it in a process of its own, as the commands do: SQLite loses its locks where two copies of it, that of Python and
    that of the server, have a file open in one process.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *given, **named).result(40)


@pytest.fixture
def server(tmp_path):
    with mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], durable=tmp_path / "store") as server:
        yield server


@pytest.fixture
def client(server):
    with mtl.Client(connect=server.endpoints, timeout_s=20) as client:
        yield client


def contents(store, count):
    """The bodies that a server delivers from a store."""
    with (
        mtl.Server(bind=ANY, anonymous=True, durable=store) as server,
        mtl.Client(connect=server.endpoints, timeout_s=20) as client,
        client.reader("jobs") as reader,
    ):
        assert client.command("Queue.Info", {"name": "jobs"}).body["messages"] == count
        reader.summon("jobs")
        return [reader.receive(timeout_s=20).body for _ in range(count)]


def test_a_store_is_copied_while_its_server_uses_it(client, tmp_path):
    with client.writer("jobs") as writer:
        for number in range(100):
            writer.send(b"%d" % number)
        writer.flush(timeout_s=20)
        copied = elsewhere(back_up, tmp_path / "store", tmp_path / "copy")
        assert (copied.queues, copied.contents) == (1, 100)
        writer.send(b"later")
        writer.flush(timeout_s=20)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["queues.sqlite"]
    assert contents(tmp_path / "copy", 100) == [b"%d" % number for number in range(100)]


def test_a_copy_has_what_was_confirmed_before_and_stands_in_nobodys_way(client, tmp_path):
    over = threading.Event()
    confirmed = []

    def write():
        with client.writer("jobs") as writer:
            while not over.is_set():
                writer.send(b"x" * 1000)
                writer.flush(timeout_s=20)
                confirmed.append(None)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(5):
            before = len(confirmed)
            copied = elsewhere(back_up, tmp_path / "store", tmp_path / f"copy{number}")
            assert before <= copied.contents <= len(confirmed) + 1
    finally:
        over.set()
        writing.join(20)
    assert len(confirmed) > 5


def test_a_store_that_is_not_in_use_is_copied_as_well(server, client, tmp_path):
    with client.writer("jobs") as writer:
        writer.send(b"x")
    client.close()
    server.close()
    assert elsewhere(back_up, tmp_path / "store", tmp_path / "copy").contents == 1
    assert contents(tmp_path / "copy", 1) == [b"x"]
    assert contents(tmp_path / "store", 1) == [b"x"]


@pytest.mark.usefixtures("server")
def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(LocalProtocolError, match="is not the store of an MTL server"):
        elsewhere(back_up, tmp_path, tmp_path / "copy")
    (tmp_path / "copy").mkdir()
    with pytest.raises(LocalProtocolError, match="already exists"):
        elsewhere(back_up, tmp_path / "store", tmp_path / "copy")
    (tmp_path / "other").mkdir()
    sqlite3.connect(tmp_path / "other" / "queues.sqlite").execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(LocalProtocolError, match="a database of another program"):
        elsewhere(back_up, tmp_path / "other", tmp_path / "another")


def test_users_and_queues_move_in_one_file(client, tmp_path):
    users = Users.read({"ada": "sesame"}).adding("bob", "secret", read=["jobs*"])
    users.write(tmp_path / "users.toml")
    client.command("Queue.Create", {"name": "mail", "max-messages": 10, "dead-letter": "lost"})
    found = elsewhere(Definitions.of, users=tmp_path / "users.toml", durable=tmp_path / "store")
    (tmp_path / "all.json").write_text(found.to_json())
    again = Definitions.read(tmp_path / "all.json")
    assert (again.users, again.queues) == (found.users, found.queues)
    again.users.write(tmp_path / "copied.toml")
    assert Users.read(tmp_path / "copied.toml") == users
    assert again.add_queues(tmp_path / "new") == 2
    assert again.add_queues(tmp_path / "new") == 0
    with (
        mtl.Server(bind=ANY, users=tmp_path / "copied.toml", durable=tmp_path / "new") as server,
        mtl.Client(connect=server.endpoints, user="ada", password="sesame", timeout_s=20) as ada,
    ):
        assert ada.command("Queue.List").body["queues"] == ["jobs", "mail"]
        info = ada.command("Queue.Info", {"name": "mail"}).body
        assert (info["max-messages"], info["dead-letter"]) == (10, "lost")
        with pytest.raises(OSError, match="in use by another server"):
            again.add_queues(tmp_path / "new")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a file of definitions"),
        ("[]", "is not a file of definitions"),
        ('{"format": "trunkline-mtl-definitions", "version": 2}', "has version 2"),
        ('{"format": "trunkline-mtl-definitions", "version": 1, "queues": [1]}', "queues must be a list"),
        ('{"format": "trunkline-mtl-definitions", "version": 1, "users": "[x"}', "not valid TOML"),
        ('{"format": "trunkline-mtl-definitions", "version": 1, "users": 5}', "users is not the text of a users file"),
        ('{"format": "trunkline-mtl-definitions", "version": 1, "users": "a=\\ud800"}', "users is not the text"),
        ("[" * 200_000, "is not a file of definitions"),
    ],
)
def test_what_are_no_definitions_is_said(tmp_path, text, said):
    (tmp_path / "all.json").write_text(text)
    with pytest.raises(LocalProtocolError, match=said):
        Definitions.read(tmp_path / "all.json")


QUEUE = {"virtual-host": "/", "profile": "queue", "name": "mail"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max-messages": "abc"}, "queue 2 ('mail'): max-messages: expected a whole number from 1, not 'abc'"),
        ({"max-messages": 0}, "max-messages: expected a whole number from 1, not 0"),
        ({"max-bytes": True}, "max-bytes: expected a whole number from 1, not True"),
        ({"max-bytes": 1e3}, "max-bytes: expected a whole number from 1, not 1000.0"),
        ({"ttl-ms": 2**64}, "ttl-ms: expected a whole number from 1, not 18446744073709551616"),
        ({"dead-letter": ""}, "dead-letter: expected printable text of 1 to 255 bytes, not ''"),
        ({"dead-letter": 5}, "dead-letter: expected printable text of 1 to 255 bytes, not 5"),
        ({"maker": 5}, "maker: expected text, not 5"),
        ({"profile": "nope"}, "queue 2 ('mail'): profile: expected 'queue', not 'nope'"),
        ({"profile": ["queue"]}, "profile: expected 'queue', not ['queue']"),
        ({"profile": None}, "queue 2 ('mail'): profile is missing"),
        ({"virtual-host": 5}, "virtual-host: expected text, not 5"),
        ({"name": ""}, "queue 2: name: expected printable text of 1 to 255 bytes, not ''"),
        ({"name": "x" * 256}, "queue 2: name: expected printable text of 1 to 255 bytes, not 'xxx"),
        ({"name": "a\nb"}, "queue 2: name: expected printable text"),
        ({"name": "\ud800"}, "queue 2: name: expected printable text of 1 to 255 bytes, not '\\ud800'"),
        ({"name": None}, "queue 2: name is missing"),
        ({"name": "jobs"}, "queue 2 ('jobs'): name: another queue of its virtual-host and profile has it"),
        ({"max-mesages": 5}, "there is no field 'max-mesages': did you mean 'max-messages'?"),
    ],
)
def test_a_queue_that_no_server_would_create_is_refused(tmp_path, changed, said):
    queues = [{**QUEUE, "name": "jobs"}, {**QUEUE, **changed}]
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"format": "trunkline-mtl-definitions", "version": 1, "queues": queues}))
    with pytest.raises(LocalProtocolError) as refused:
        Definitions.read(file)
    assert str(refused.value).startswith(f"{file}: queue 2")
    assert said in str(refused.value)


def test_a_queue_may_leave_out_what_a_server_has_bounds_for(tmp_path):
    bounds = dict.fromkeys(("maker", "max-messages", "max-bytes", "ttl-ms", "dead-letter"))
    queues = [QUEUE, {**QUEUE, **bounds, "name": "é" * 127}, {**QUEUE, "profile": "bank"}]
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"format": "trunkline-mtl-definitions", "version": 1, "queues": queues}))
    assert Definitions.read(file, profiles=("queue", "bank")).add_queues(tmp_path / "store") == 3
    profiles = ["queue", mtl.Profile("bank")]
    with (
        mtl.Server(bind=ANY, anonymous=True, profiles=profiles, durable=tmp_path / "store") as server,
        mtl.Client(connect=server.endpoints, timeout_s=20) as client,
    ):
        assert client.command("Queue.List").body["queues"] == ["mail", "é" * 127]


@pytest.mark.usefixtures("server")
def test_a_copy_inside_its_store_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for copy in (tmp_path / "store" / "copy", tmp_path / "link" / "copy", tmp_path / "store" / "none" / "copy"):
        with pytest.raises(LocalProtocolError, match="would be inside the store"):
            elsewhere(back_up, tmp_path / "store", copy)
    assert not (tmp_path / "store" / "copy").exists()


@pytest.mark.usefixtures("server")
def test_a_copy_that_cannot_be_made_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="No such file") as failed:
        elsewhere(back_up, tmp_path / "store", tmp_path / "none" / "copy")
    assert failed.value.filename == str(tmp_path / "none" / "copy")
    copy = tmp_path / ("x" * 300)
    with pytest.raises(OSError, match="too long") as failed:
        elsewhere(back_up, tmp_path / "store", copy)
    assert failed.value.filename == str(copy)
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_definitions_say_what_was_asked_for(tmp_path):
    Users.read({"ada": "sesame"}).write(tmp_path / "users.toml")
    said = json.loads(elsewhere(Definitions.of, users=tmp_path / "users.toml").to_json())
    assert set(said) == {"format", "version", "users"}
