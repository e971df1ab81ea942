"""Requests to S3 of our own."""

import socket
from urllib.parse import quote

import pytest
from pyarrow.fs import LocalFileSystem

from peers.s3 import S3
from trunkline._locations import Url
from trunkline.capture.s3 import Keys, Parts, signature
from trunkline.capture.stores import Store

# From the documentation of AWS, "Signature Calculations for the Authorization Header".
KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "")
HEADERS = {
    "host": "examplebucket.s3.amazonaws.com",
    "range": "bytes=0-9",
    "x-amz-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "x-amz-date": "20130524T000000Z",
}


def test_a_request_is_signed_as_aws_says():
    said = signature(KEYS, "us-east-1", "/test.txt", HEADERS)
    assert said.endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


@pytest.fixture
def opened(s3):
    return Store(Url(s3.url("parts")))


def test_a_part_takes_one_request(s3, opened):
    content = bytes(range(256)) * 40_000
    s3.put(quote("parts/ä +%/x"), content)
    with s3.counting() as requests:
        file, size = opened.open("ä +%/x")
        assert size == len(content)
        assert file.read_at(100, 50) == content[50:150]
    assert [request.partition(" ")[0] for request in requests] == ["GET"]
    with s3.counting() as requests:
        file, size = opened.open("ä +%/x", len(content))
        assert file.read_at(1000, len(content) - 10) == content[-10:]
        assert file.read_at(7, 9_000_001) == content[9_000_001:9_000_008]
    assert len(requests) == 2


def test_what_a_request_cannot_say_pyarrow_says(s3, opened):
    for size in (None, 100):
        with pytest.raises(FileNotFoundError):
            file, _ = opened.open("none", size)
            file.read_at(10, 0)
    s3.put("parts/empty", b"")
    file, size = opened.open("empty")
    assert (size, file.read_at(10, 0)) == (0, b"")
    gone = Store(Url(s3.url("x", bucket="nobucket")))
    with pytest.raises(OSError, match="nobucket"):
        gone.open("x")


def test_who_is_refused_is_told_so_by_pyarrow():
    # It lets nobody write without keys afterwards.
    server = S3()
    try:
        server.put("parts/x", b"some")
        opened = Store(Url(server.url("parts")))
        with server.knowing_nobody(), pytest.raises(PermissionError, match="the store does not know you"):
            opened.open("x")
        assert opened.open("x")[0].read_at(10, 0) == b"some"
    finally:
        server.close()


def test_an_idle_connection_may_have_been_closed(s3):
    s3.put("parts/x", b"some")
    parts = Parts.of(Store(Url(s3.url("parts"))).files)
    for _ in range(2):
        assert parts.read("lab/parts/x", 1, 2) == (b"om", 4)
        # As a server closes it.
        for _, connection in parts._idle:
            connection.sock and connection.sock.shutdown(socket.SHUT_RDWR)


def test_without_known_keys_pyarrow_reads(s3, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert Parts.of(Store(Url(f"s3://lab/x?scheme=http&endpoint_override=127.0.0.1:{s3.port}&region=a")).files) is None
    assert Parts.of(LocalFileSystem()) is None
    with monkeypatch.context() as known:
        known.setenv("AWS_ACCESS_KEY_ID", "key")
        known.setenv("AWS_SECRET_ACCESS_KEY", "se/cret")
        url = Url(f"s3://lab/x?scheme=http&endpoint_override=127.0.0.1:{s3.port}&region=us-east-1")
        files = Store(url).files
        with files.open_output_stream("lab/parts/y") as file:
            file.write(b"some")
        assert Parts.of(files).read("lab/parts/y", 0, 10) == (b"some", 4)
