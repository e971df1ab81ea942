"""`trunkline keygen`."""

import json

import pytest
import zmq.auth

from trunkline import Curve


def test_a_pair_is_made_and_serves(run, tmp_path):
    out, _ = run("keygen", "daq1", "--output", "new/keys")
    shown, hidden = tmp_path / "new/keys/daq1.key", tmp_path / "new/keys/daq1.key_secret"
    assert hidden.stat().st_mode & 0o777 == 0o600
    public, secret = zmq.auth.load_certificate(hidden)
    assert zmq.auth.load_certificate(shown) == (public, None)
    assert zmq.curve_public(secret) == public
    assert Curve(hidden).public_key == public
    assert public.decode() in out
    assert secret.decode() not in out
    assert secret.decode() not in shown.read_text()


def test_as_json(run):
    out, _ = run("keygen", "bus", "--json")
    event = json.loads(out)
    assert (event["event"], event["name"], event["public_file"]) == ("key", "bus", "bus.key")
    assert len(event["public_key"]) == 40


@pytest.mark.parametrize("there", ["daq1.key", "daq1.key_secret"])
def test_nothing_is_replaced(run, tmp_path, there):
    (tmp_path / there).write_text("mine")
    _, err = run("keygen", "daq1", returncode=1)
    assert err.count("\n") == 1
    assert f"{there} already exists" in err
    assert [file.name for file in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/a", "a\nb"])
def test_a_name_is_no_path(run, tmp_path, name):
    run("keygen", name, returncode=2)
    assert not list(tmp_path.iterdir())
