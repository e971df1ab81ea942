"""`trunkline mtl users`."""

import json
import os
import pty
import shutil
import subprocess
import sys

import pytest

from trunkline.mtl.sasl import Authenticator, Welcome
from trunkline.mtl.users import Users


def may_log_in(path, name, password):
    authenticator = Authenticator(Users.read(path))
    answer = authenticator.step("PLAIN", f"\0{name}\0{password}".encode(), b"", is_private=True, user_id=None)
    return answer if isinstance(answer, Welcome) else None


def test_users_come_and_go(run, tmp_path):
    path = tmp_path / "users.toml"
    out, err = run(
        "mtl", "users", "add", "ada", "--file", "users.toml", "--read", "a*", "--read", "b", stdin="one\nmore"
    )
    assert (out, "added ada to" in err) == ("", True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert may_log_in(path, "ada", "one") == Welcome("ada", ("a*", "b"), None)
    run("mtl", "users", "add", "Zoë", "--file", "users.toml", stdin="with space \r\n")
    assert may_log_in(path, "Zoë", "with space ")
    _, err = run("mtl", "users", "add", "ada", "--file", "users.toml", "--write", "c", stdin="two")
    assert "changed the password of ada" in err
    assert not may_log_in(path, "ada", "one")
    assert may_log_in(path, "ada", "two") == Welcome("ada", ("a*", "b"), ("c",))
    with path.open("a", encoding="utf-8") as file:
        file.write("[users.by-key]\nread = []\n")
    head, *rows = run("mtl", "users", "list", "--file", "users.toml")[0].splitlines()
    assert head.split() == ["name", "password", "read", "write"]
    assert [row.replace(", ", ",").split() for row in rows] == [
        ["Zoë", "yes", "all", "all"],
        ["ada", "yes", "a*,b", "c"],
        ["by-key", "no", "none", "all"],
    ]
    listed = run("mtl", "users", "list", "--file", "users.toml", "--json")[0]
    assert [*map(json.loads, listed.splitlines())] == [
        {"event": "user", "name": "Zoë", "password": True, "read": None, "write": None},
        {"event": "user", "name": "ada", "password": True, "read": ["a*", "b"], "write": ["c"]},
        {"event": "user", "name": "by-key", "password": False, "read": [], "write": None},
    ]
    run("mtl", "users", "remove", "by-key", "--file", "users.toml")
    run("mtl", "users", "remove", "ada", "--file", "users.toml")
    assert list(Users.read(path)) == ["Zoë"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["add", "ada"], "", "it is empty"),
        (["add", "ada"], "\n", "it is empty"),
        (["add", "ada"], "\x07\n", "U+0007"),
        (["add", "a\x07"], "x", "U+0007"),
        (["remove", "eve"], "", "no user 'eve'"),
        (["remove", "ada", "--file", "nowhere/users.toml"], "", "nowhere"),
        (["list", "--file", "nowhere.toml"], "", "nowhere.toml"),
    ],
)
def test_what_cannot_be_done_changes_nothing(run, tmp_path, arguments, stdin, said):
    path = tmp_path / "users.toml"
    path.write_text("# kept\n")
    where = () if "--file" in arguments else ("--file", "users.toml")
    _, err = run("mtl", "users", *arguments, *where, stdin=stdin, returncode=1)
    assert said in err
    assert err.count("\n") == 1
    assert path.read_text() == "# kept\n"
    assert [file.name for file in tmp_path.iterdir()] == ["users.toml"]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="mounts need Linux")
def test_a_file_that_is_a_mount_of_its_own_is_named(run, tmp_path):
    run("mtl", "users", "add", "ada", "--file", "real.toml", stdin="sesame\n")
    before = (tmp_path / "real.toml").read_bytes()
    (tmp_path / "users.toml").touch()
    # The mount ends with its namespace.
    script = 'mount --bind real.toml users.toml || exit 77; echo open | "$0" -m trunkline mtl users add eve --file users.toml'
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("mounting is not possible here")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"trunkline: error: {tmp_path / 'users.toml'}: it is a mount of its own")
    assert "mount its directory" in ended.stderr
    assert (tmp_path / "real.toml").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["real.toml", "users.toml"]


def typed(tmp_path, *lines):
    """What the command says at a terminal where this is typed, and how it ends."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trunkline", "mtl", "users", "add", "ada", "--file", "users.toml"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, start_new_session=True, text=True
    )
    os.close(theirs)
    said = b""
    for line in lines:
        while not said.rstrip(b" ").endswith(b":"):
            said += os.read(ours, 1000)
        os.write(ours, line.encode() + b"\n")
        said += b"\n"
    while True:
        try:
            more = os.read(ours, 1000)
        except OSError:
            break
        if not more:
            break
        said += more
    os.close(ours)
    return said.decode(), process.wait(timeout=20)


def test_at_a_terminal_the_password_is_typed_twice_and_not_shown(tmp_path):
    said, code = typed(tmp_path, "seen by nobody", "seen by nobody")
    assert code == 0, said
    assert "seen" not in said
    assert may_log_in(tmp_path / "users.toml", "ada", "seen by nobody")
    before = (tmp_path / "users.toml").read_text()
    said, code = typed(tmp_path, "one", "another")
    assert (code, "passwords differ" in said) == (1, True), said
    said, code = typed(tmp_path, "", "")
    assert (code, "empty" in said) == (1, True), said
    assert (tmp_path / "users.toml").read_text() == before


def test_the_password_is_no_argument(run):
    _, err = run("mtl", "users", "add", "ada", "secret", "--file", "users.toml", returncode=2)
    assert "--help" in err


def test_a_program_adds_users(run, tmp_path):
    (tmp_path / "secret").write_bytes(b"sesame\r\nmore\n")
    add = ("mtl", "users", "add", "ada", "--file", "users.toml", "--password-file", "secret", "--json")
    fields = {"name": "ada", "file": "users.toml"}
    assert json.loads(run(*add)[0]) == {"event": "added", **fields}
    assert may_log_in(tmp_path / "users.toml", "ada", "sesame")
    assert json.loads(run(*add)[0]) == {"event": "changed", **fields}
    (tmp_path / "secret").write_bytes(b"\xff")
    _, err = run(*add, returncode=1)
    assert "secret: the password is not UTF-8" in err
    remove = run("mtl", "users", "remove", "ada", "--file", "users.toml", "--json")
    assert json.loads(remove[0]) == {"event": "removed", **fields}
