"""The users of a server: their file, their limits, and what becomes of who has fewer."""

import os
import stat
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline import LocalProtocolError
from trunkline.mtl.saslprep import saslprep
from trunkline.mtl.scram import Verifier
from trunkline.mtl.users import User, Users, changing

SECRET = Verifier(4096, b"salt", b"s" * 32, b"k" * 32)


def is_name(text):
    try:
        return saslprep(text, stored=True) == text != ""
    except ValueError:
        return False


NAMES = st.text(min_size=1, max_size=8).filter(is_name)
PATTERNS = st.none() | st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=3).map(tuple)
VERIFIERS = st.none() | st.builds(
    Verifier,
    st.integers(4096, 10**6),
    st.binary(min_size=1, max_size=40),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
)
USERS = st.lists(st.builds(User, NAMES, VERIFIERS, PATTERNS, PATTERNS), max_size=4).map(Users)


@given(users=USERS)
def test_what_is_written_is_read(tmp_path_factory, users):
    path = tmp_path_factory.mktemp("users") / "users.toml"
    users.write(path)
    assert Users.read(path) == users
    assert set(tomllib.loads(path.read_text()).get("users", {})) == set(users)
    path.write_text("# mine\n  # and more\n" + path.read_text())
    users.write(path)
    assert path.read_text().startswith("# mine\n  # and more\n")
    assert Users.read(path) == users


def test_a_file_is_written_for_its_owner_alone_and_whole(tmp_path):
    path = tmp_path / "users.toml"
    Users([User("ada", SECRET, ("a", "b*"), ())], secret=b"z" * 32).write(path)
    assert path.read_text() == (
        'secret = "enp6enp6enp6enp6enp6enp6enp6enp6enp6enp6eno="\n\n[users.ada]\nscram-sha-256 = "4096$c2FsdA==$c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M='
        '$a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="\nread = ["a", "b*"]\nwrite = []\n'
    )
    path.chmod(0o644)
    Users().write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tomllib.loads(path.read_text())) == ["secret"]
    assert [file.name for file in tmp_path.iterdir()] == ["users.toml"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "users.toml"
    before = Users([User("ada", SECRET)])
    before.write(path)

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        Users().write(path)
    assert Users.read(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["users.toml"]


def test_the_secret_lasts(tmp_path):
    path = tmp_path / "users.toml"
    with changing(path) as users:
        users.adding("ada", "one").write(path)
    shapes = [Users.read(path).shape("eve")]
    with changing(path) as users:
        users.adding("bob", "two").removing("ada").write(path)
    shapes.append(Users.read(path).shape("eve"))
    with changing(path) as users:
        users.removing("bob").write(path)
    assert shapes == [Users.read(path).shape("eve")] * 2
    assert list(Users.read(path)) == []


def test_a_link_to_the_file_stays_one(tmp_path):
    (tmp_path / "link").symlink_to("users.toml")
    Users([User("ada", SECRET)]).write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert list(Users.read(tmp_path / "users.toml")) == ["ada"]


def test_passwords_of_a_mapping_are_not_kept():
    users = Users.read({"ada": "the secret", "Zoë": "another"})
    assert list(users) == ["Zoë", "ada"]
    assert users.get("ada").verifier != Users.read({"ada": "the secret"}).get("ada").verifier
    assert "secret" not in repr([users, *map(users.get, users)])
    assert str(users.get("ada").verifier) not in repr([users, *map(users.get, users)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[user.ada]", ["'user'", "[users.NAME]"]),
        ("users = 3", ["[users.NAME]"]),
        ("users.ada = 3", ["'ada'", "table"]),
        ("[users.ada]\npassword = 'x'", ["'ada'", "'password'"]),
        ("[users.ada]\nscram-sha-256 = 3", ["'ada'", "scram-sha-256"]),
        ("[users.ada]\nscram-sha-256 = 'x'", ["'ada'", "scram-sha-256", "iterations$salt$stored$server"]),
        ("[users.ada]\nscram-sha-256 = '1$YQ==$YQ==$YQ=='", ["'ada'", "4096 to 1000000"]),
        ("[users.ada]\nscram-sha-256 = '9999999$YQ==$YQ==$YQ=='", ["'ada'", "4096 to 1000000"]),
        ("[users.ada]\nscram-sha-256 = '4096$YQ==$YQ==$YQ=='", ["'ada'", "32 bytes"]),
        ("[users.ada]\nscram-sha-256 = '4096$Y$YQ==$YQ=='", ["'ada'", "BASE64"]),
        ("[users.ada]\nread = 'all'", ["'ada'", "read", "list"]),
        ("[users.ada]\nwrite = [1]", ["'ada'", "write", "list"]),
        ("[users.'']", ["''", "empty"]),
        ("[users.'a\u00a0b']", ["a b"]),
        ("[users.'a\\u0007']", None),
        ('[users."a\\u0007"]', ["U+0007"]),
        ("[users.ada", ["TOML"]),
        ("", ["empty", "[users.NAME]"]),
        ("# of no use\n", ["empty"]),
        ("secret = 3", ["secret", "32 bytes"]),
        ("secret = 'eno='", ["secret", "32 bytes"]),
        ("\xff", ["TOML"]),
    ],
)
def test_a_file_that_means_nothing_is_refused_in_words(tmp_path, text, words):
    path = tmp_path / "users.toml"
    path.write_bytes(text.encode("latin-1" if text == "\xff" else "utf-8"))
    if words is None:
        assert list(Users.read(path)) == ["a\\u0007"]
        return
    with pytest.raises(LocalProtocolError) as raised:
        Users.read(path)
    assert all(word in str(raised.value) for word in [str(path), *words]), raised.value


@pytest.mark.parametrize("passwords", [{"ada": ""}, {"ada": "\x07"}, {"": "x"}, {"a\x07": "x"}])
def test_what_is_no_password_or_name_is_refused(passwords):
    with pytest.raises(LocalProtocolError):
        Users.read(passwords)


@pytest.mark.parametrize(
    ("pattern", "resource", "is_in"),
    [
        ("jobs", "jobs", True),
        ("jobs", "jobs1", False),
        ("jobs*", "jobs", True),
        ("jobs*", "my jobs", False),
        ("*s", "jobs", True),
        ("j?bs", "jobs", True),
        ("j?bs", "jbs", False),
        ("*", "", True),
        ("?", "\n", True),
        ("**a*", "bab", True),
        ("a[bc]", "ab", False),
        ("a[bc]", "a[bc]", True),
        ("a.c", "abc", False),
        ("*?*?", "a", False),
        ("*" + "a*" * 40 + "b", "a" * 255, False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_patterns(pattern, resource, is_in):
    before, after = User("ada", None, (resource,), (resource,)), User("ada", None, (pattern,), ("other", pattern))
    assert before.is_within(after) is is_in


@given(st.text("ab?*", max_size=6), st.text("ab", max_size=8))
def test_patterns_are_those_of_fnmatch(pattern, resource):
    assert User("ada", None, (resource,)).is_within(User("ada", None, (pattern,))) is fnmatchcase(resource, pattern)


@given(st.text("ab?*", max_size=5), st.text("ab?*", max_size=5), st.lists(st.text("ab", max_size=6)))
def test_who_is_not_narrowed_may_do_what_he_might(before, after, resources):
    old, new = User("ada", None, (before,)), User("ada", None, (after,))
    if not Users([old]).changed(Users([new])):
        assert all(fnmatchcase(name, after) for name in resources if fnmatchcase(name, before))


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        (User("ada", SECRET), User("ada"), False),
        (User("ada"), User("ada", None, ("a",)), True),
        (User("ada", None, ("a",)), User("ada"), False),
        (User("ada", None, ("a", "b")), User("ada", None, ("b", "a", "c")), False),
        (User("ada", None, ("a", "b")), User("ada", None, ("b",)), True),
        (User("ada", None, ("jobs1", "jobs?")), User("ada", None, ("jobs*",)), False),
        (User("ada", None, ("jobs*",)), User("ada", None, ("jobs?",)), True),
        (User("ada", None, None, ("*",)), User("ada", None, None, ("?*",)), True),
        (User("ada", None, None, ()), User("ada", None, None, ("a",)), False),
        (User("ada", None, None, ("a",)), User("ada", None, None, ()), True),
        (User("ada"), User("eve"), True),
    ],
)
def test_who_is_removed_or_may_do_less_is_told(before, after, is_changed):
    assert Users([before]).changed(Users([after])) == ({"ada"} if is_changed else set())


def test_adding_and_removing():
    users = Users().adding("ada", "one", read=["a"])
    again = users.adding("ada", "two", write=["b"])
    assert (again.get("ada").read, again.get("ada").write) == (("a",), ("b",))
    assert again.get("ada").verifier != users.get("ada").verifier
    assert len(again.removing("ada")) == 0
    with pytest.raises(LocalProtocolError, match="'eve'"):
        users.removing("eve")


def test_those_who_change_a_file_at_once_lose_nothing(tmp_path):
    code = (
        "import sys; from trunkline.mtl.users import *; from trunkline.mtl.scram import Verifier\n"
        "for number in range(20):\n"
        "    with changing(sys.argv[1]) as users:\n"
        "        Users([*map(users.get, users), User(f'{sys.argv[2]}{number}')]).write(sys.argv[1])"
    )
    path = tmp_path / "users.toml"
    writers = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "abc"]
    assert [writer.wait(timeout=50) for writer in writers] == [0, 0, 0]
    assert len(Users.read(path)) == 60


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "none" / "users.toml"
    with pytest.raises(FileNotFoundError) as failed:
        Users.read({"ada": "sesame"}).write(path)
    assert failed.value.filename == str(path)
