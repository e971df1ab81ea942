"""`--check`: whether a role could start, without starting it."""

from __future__ import annotations

import json
import socket

import pytest

POLICY = '[[allow]]\nclient = "daq*"\npublish = ["runs.*"]\n'


@pytest.fixture
def taken():
    """An endpoint at which another process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_a_policy_is_checked_beside_the_bus_that_runs(run, tmp_path, taken):
    (tmp_path / "policy.toml").write_text(POLICY)
    check = ("mc0", "middleware", "--bind", taken, "--policy", "policy.toml", "--capture", "capture", "--check")
    assert run(*check) == ("all is well\n", "")
    assert json.loads(run(*check, "--json")[0]) == {"event": "checked"}
    assert not (tmp_path / "capture").exists()
    (tmp_path / "policy.toml").write_text(POLICY.replace("publish", "publich"))
    out, err = run(*check, returncode=1)
    assert out == ""
    assert "policy.toml" in err
    assert "publich" in err


def test_users_are_checked_beside_the_server_that_runs(run, tmp_path, taken):
    run("mtl", "users", "add", "ada", "--file", "users.toml", stdin="sesame\n")
    check = ("mtl", "server", "--bind", taken, "--users", "users.toml", "--durable", "store", "--check")
    assert run(*check) == ("all is well\n", "")
    assert not (tmp_path / "store").exists()
    (tmp_path / "users.toml").write_text("[users.ada]\nread = 5\n")
    _, err = run(*check, returncode=1)
    assert "users.toml" in err
    _, err = run(*check, "--curve-secret", "none.key_secret", returncode=1)
    assert "none.key_secret" in err
