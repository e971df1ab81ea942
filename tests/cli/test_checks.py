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
    assert run(*check) == ("all is well: 3 options of the command line\n", "")
    assert json.loads(run(*check, "--json")[0]) == {
        "event": "checked",
        "file": None,
        "variables": [],
        "options": ["--bind", "--policy", "--capture", "--json"],
    }
    assert not (tmp_path / "capture").exists()
    (tmp_path / "policy.toml").write_text(POLICY.replace("publish", "publich"))
    out, err = run(*check, returncode=1)
    assert out == ""
    assert "policy.toml" in err
    assert "publich" in err


def test_users_are_checked_beside_the_server_that_runs(run, tmp_path, taken):
    run("mtl", "users", "add", "ada", "--file", "users.toml", stdin="sesame\n")
    check = ("mtl", "server", "--bind", taken, "--users", "users.toml", "--durable", "store", "--check")
    assert run(*check) == ("all is well: 3 options of the command line\n", "")
    assert not (tmp_path / "store").exists()
    (tmp_path / "users.toml").write_text("[users.ada]\nread = 5\n")
    _, err = run(*check, returncode=1)
    assert "users.toml" in err
    _, err = run(*check, "--curve-secret", "none.key_secret", returncode=1)
    assert "none.key_secret" in err


def test_a_check_says_what_it_looked_at_and_fails_for_a_variable_that_no_option_has(run, tmp_path):
    (tmp_path / "trunkline.toml").write_text('[mc0.middleware]\nmax-ttl = "5m"\n')
    check = ("--config", "trunkline.toml", "mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--check")
    out, err = run(*check, env={"TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPICS": "5"})
    looked_at = "trunkline.toml, 1 variable (TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPICS), 1 option of the command line"
    assert (out, err) == (f"all is well: {looked_at}\n", "")
    out, err = run(*check, env={"TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPIC": "5"}, returncode=1)
    assert out == ""
    assert "no variable TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPIC: did you mean 'TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPICS'?" in err
