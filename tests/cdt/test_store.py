"""Where configurations are kept."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline import ConfigError, LocalProtocolError, cdt


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = cdt.MemoryStore() if request.param == "memory" else cdt.SqliteStore(tmp_path / "configs.db")
    yield opened
    opened.close()


def put(store, content, endpoint="e-1", **given):
    return store.put("app-1", endpoint, content, **{"content_type": "t", "config_id": None, **given})


def status(error):
    return error.value.status_code


def test_both_are_stores(store):
    assert isinstance(store, cdt.Store)


def test_keeps_what_it_is_given(store):
    assert store.get("app-1", "e-1") is None
    first, second = put(store, b"1"), put(store, b"2")
    assert (first.is_new, second.is_new, store.count()) == (True, True, 2)
    assert store.get("app-1", "e-1") == second.config
    assert store.get("app-1", "e-1", first.config.config_id) == cdt.Config(first.config.config_id, "t", b"1")
    assert store.get("app-1", "e-1", "unknown") is None
    assert store.get("app-2", "e-1") is None
    again = put(store, b"1")
    assert (again.is_new, again.config, store.count()) == (False, first.config, 2)
    assert store.get("app-1", "e-1") == first.config


def test_refuses_what_contradicts_what_it_has(store):
    first = put(store, b"1", config_id="v").config
    for content, other in [(b"2", {"config_id": "v"}), (b"1", {"config_id": "v", "content_type": "other"})]:
        with pytest.raises(ConfigError) as raised:
            put(store, content, **other)
        assert status(raised) == 409
    with pytest.raises(ConfigError) as raised:
        put(store, b"2", if_current="w")
    assert status(raised) == 409
    with pytest.raises(ConfigError) as raised:
        put(store, b"2", endpoint="e-2", if_current="v")
    assert status(raised) == 409
    assert put(store, b"2", if_current="v").is_new
    assert store.count() == 2
    assert store.get("app-1", "e-1", "v") == first


def test_remembers_what_an_endpoint_was_to_have(store):
    ids = [put(store, content).config.config_id for content in (b"1", b"22", b"22", b"1")]
    history = store.history("app-1", "e-1")
    assert [row.config_id for row in history] == [ids[0], ids[1], ids[0]]
    assert [row.content_bytes for row in history] == [1, 2, 1]
    assert [row.since_ms for row in history] == sorted(row.since_ms for row in history)
    assert store.rollback("app-1", "e-1", ids[1]).content == b"22"
    assert len(store.history("app-1", "e-1")) == 4
    with pytest.raises(ConfigError) as raised:
        store.rollback("app-1", "e-2", ids[0])
    assert status(raised) == 404
    assert list(store.history("app-1", "e-2")) == []


def test_knows_who_has_what(store):
    first, second = put(store, b"1").config, put(store, b"2").config
    put(store, b"3", endpoint="e-0")
    store.applied([("app-1", "e-1", first.config_id, 5), ("app-1", "e-1", "unknown", 6), ("app-9", "e", "x", 7)])
    rows = {row.endpoint_id: row for row in store.rollout("app-1")}
    assert list(rows) == ["e-0", "e-1"]
    assert rows["e-1"] == cdt.Rollout("e-1", second.config_id, first.config_id, 5)
    assert rows["e-0"].applied is None
    put(store, b"4")
    assert {row.endpoint_id: row.applied for row in store.rollout("app-1")}["e-1"] == first.config_id


def test_owes_each_announcement_until_it_is_told(store):
    first, second = put(store, b"1").config, put(store, b"2").config
    put(store, b"3", endpoint="e-2")
    assert set(store.owed()) == {
        ("app-1", "e-1", second.config_id),
        ("app-1", "e-2", store.get("app-1", "e-2").config_id),
    }
    store.announced([("app-1", "e-1", first.config_id)])
    assert len(store.owed()) == 2
    store.announced([("app-1", "e-1", second.config_id)])
    assert [endpoint for _, endpoint, _ in store.owed()] == ["e-2"]
    store.rollback("app-1", "e-1", first.config_id)
    assert len(store.owed()) == 2


names = st.text(min_size=1, max_size=8)


@given(app=names, endpoint=names, config_id=names, content_type=st.text(max_size=8), content=st.binary(max_size=30))
def test_takes_any_names(tmp_path_factory, app, endpoint, config_id, content_type, content):
    store = cdt.SqliteStore(tmp_path_factory.mktemp("store") / "configs.db")
    try:
        if any("\ud800" <= char <= "\udfff" for char in app + endpoint + config_id + content_type):
            return
        config = store.put(app, endpoint, content, content_type=content_type, config_id=config_id).config
        assert store.get(app, endpoint) == config == cdt.Config(config_id, content_type, content)
        assert store.rollout(app)[0].endpoint_id == endpoint
    finally:
        store.close()


def test_survives_its_end(tmp_path):
    store = cdt.SqliteStore(tmp_path / "configs.db")
    config = put(store, b"1").config
    store.close()
    again = cdt.SqliteStore(tmp_path / "configs.db")
    assert again.get("app-1", "e-1") == config
    assert (again.count(), len(again.owed())) == (1, 1)
    again.close()


def test_two_who_share_a_file_see_what_the_other_writes(tmp_path):
    one, other = (cdt.SqliteStore(tmp_path / "configs.db") for _ in range(2))
    first = put(one, b"1").config
    for looking in (one, other):
        assert looking.get("app-1", "e-1") == first
        assert looking.peek("app-1", "e-1") == first
    second = put(other, b"2").config
    for looking in (one, other):
        with pytest.raises(LookupError):
            looking.peek("app-1", "e-1")
        assert looking.get("app-1", "e-1") == second
    one.close()
    other.close()


def test_many_put_at_a_time(tmp_path):
    stores = [cdt.SqliteStore(tmp_path / "configs.db") for _ in range(2)]
    failures = []

    def work(number):
        try:
            for count in range(25):
                put(stores[number % 2], f"{number} {count}".encode(), endpoint=f"e-{count % 3}")
        except sqlite3.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [store.count() for store in stores] == [100, 100]
    for store in stores:
        store.close()


def test_looks_without_making_anything(tmp_path):
    with pytest.raises(FileNotFoundError):
        cdt.SqliteStore(tmp_path / "none.db", read_only=True)
    assert not (tmp_path / "none.db").exists()
    store = cdt.SqliteStore(tmp_path / "configs.db")
    config = put(store, b"1").config
    looking = cdt.SqliteStore(tmp_path / "configs.db", read_only=True)
    assert looking.get("app-1", "e-1") == config
    with pytest.raises(sqlite3.OperationalError):
        put(looking, b"2")
    looking.close()
    store.close()


@pytest.mark.parametrize("content", [b"text", b"SQLite format 3\0" + bytes(100)])
def test_a_file_of_something_else_is_refused_and_stays_as_it_was(tmp_path, content):
    file = tmp_path / "other.db"
    file.write_bytes(content)
    with pytest.raises(LocalProtocolError, match=r"other\.db"):
        cdt.SqliteStore(file)
    assert file.read_bytes() == content


def test_another_database_is_refused(tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(LocalProtocolError, match="another database"):
        cdt.SqliteStore(tmp_path / "other.db")
    later = cdt.SqliteStore(tmp_path / "later.db")
    later.close()
    other = sqlite3.connect(tmp_path / "later.db")
    other.execute("PRAGMA user_version=99")
    other.close()
    with pytest.raises(LocalProtocolError, match="newer trunkline: install its version"):
        cdt.SqliteStore(tmp_path / "later.db")


def test_a_place_that_is_none_is_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError, match="cannot be opened"):
        cdt.SqliteStore(tmp_path / "none" / "configs.db")


def test_names_that_nothing_has_take_the_room_they_take(tmp_path):
    name = "e" * (1 << 20)
    with contextlib.closing(cdt.SqliteStore(tmp_path / "configs.db")) as store:
        tracemalloc.start()
        try:
            for number in range(100):
                assert store.get("app-1", f"{number}{name}") is None
            assert tracemalloc.get_traced_memory()[0] < 70 << 20
        finally:
            tracemalloc.stop()
