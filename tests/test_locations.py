"""URLs: what they name, and that nobody reads their secrets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trunkline import capture, cdtp
from trunkline._locations import Url, location_of, without_secrets
from trunkline.errors import CaptureError, LocalProtocolError

# Of schemes that pyarrow knows and does not know, with what a secret may have in it, and URLs that are none.
SECRETS = [
    "s3a://KEYX:SECRETX@b/x",
    "memory://KEYX:SECRETX@b/x",
    "s3://KEYX:SEC/RETX@b/x",
    "s3://KEYX:SEC#RETX@b/x",
    "s3://KEYX:SEC?RETX@b/x",
    "s3://TOKENX@b/x?secret_key=RETX",
    "gs://KEYX:SECRETX@b/x.foo",
]
PARTS = ("KEYX", "SEC", "RETX", "TOKENX")


@pytest.mark.parametrize("text", SECRETS)
def test_a_url_as_text_has_no_secret(text):
    url = location_of(text)
    assert os.fspath(url) == text
    for shown in (str(url), repr(url), f"{url / 'y'}", url.hidden(f"cannot read {text}: no")):
        assert not any(part in shown for part in PARTS), shown
    assert str(url).endswith(("//b/x", "//b/x.foo"))


@pytest.mark.parametrize("text", SECRETS)
def test_errors_about_a_url_have_no_secret(text, tmp_path):
    with cdtp.Recorder(tmp_path / "c", bind="tcp://127.0.0.1:*"):
        pass
    for act in (
        lambda: capture.open(text).info(),
        lambda: capture.verify(text),
        lambda: capture.export(tmp_path / "c", text),
        lambda: cdtp.Recorder(text, bind="tcp://127.0.0.1:*"),
    ):
        with pytest.raises((CaptureError, LocalProtocolError)) as refused:
            act()
        assert not any(part in f"{refused.value!s} {refused.value!r}" for part in PARTS), refused.value


@pytest.mark.parametrize(
    "arguments",
    [
        ["capture", "info"],
        ["capture", "info", "--json"],
        ["capture", "cat"],
        ["capture", "verify"],
        ["capture", "ship", "c"],
        ["capture", "export", "c"],
        ["capture", "report", "c"],
        ["capture", "info", "one-too-many"],
        ["cdtp", "send", "--name", "x", "--bind", "tcp://127.0.0.1:*"],
        ["mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--policy"],
        ["--config"],
    ],
    ids=" ".join,
)
def test_commands_print_no_secret(arguments, tmp_path):
    with cdtp.Recorder(tmp_path / "c", bind="tcp://127.0.0.1:*"):
        pass
    command = [sys.executable, "-m", "trunkline", *arguments, SECRETS[2].replace("s3:", "s3a:")]
    ran = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert ran.returncode in (1, 2)
    assert ran.stderr
    assert not any(part in ran.stdout + ran.stderr for part in PARTS), ran.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://me:se/cret@host:4222 and s3://a:b@c/d", "nats://host:4222 and s3://c/d"),
        ("s3:/a:b@c/d", "s3:/c/d"),
        ("tcp://127.0.0.1:5000: refused; write to ada@example.org", None),
        ("http://127.0.0.1:9100/metrics", None),
        ("'s3://lab/a@b'", None),
        ("as s3://KEY:SECRET@bucket/folder", None),
    ],
)
def test_other_text_stays_as_it_is(text, shown):
    assert without_secrets(text) == (text if shown is None else shown)


def test_a_file_of_another_machine_is_refused(tmp_path):
    for host in ("", "localhost"):
        assert location_of(f"file://{host}{tmp_path}") == tmp_path
    with pytest.raises(LocalProtocolError, match=r"is on another machine, evil\.example"):
        location_of(f"file://me:secret@evil.example{tmp_path}")
    with pytest.raises(LocalProtocolError, match="is not a URL"):
        location_of("http://[::1/x")


def test_paths_below_a_url_keep_its_options():
    assert (
        os.fspath(Url("s3://me:secret@lab/runs/?region=eu-west-1") / "run7")
        == "s3://me:secret@lab/runs/run7?region=eu-west-1"
    )
