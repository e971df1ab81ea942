"""What each version has written, read and gone on with by this one.

`python tests/test_upgrade.py` writes the files of this version, if it has none yet.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest

import trunkline
from trunkline import capture, cdt, cdtp, mtl
from trunkline.mtl.users import Users

VERSIONS = Path(__file__).parent / "data" / "versions"
ANY = "tcp://127.0.0.1:*"
PUBLISHED, MERGED, LEFT = 10, 20, 5
CONTENTS = [(b"start %d" % run, {"run": run}) for run in range(3)]


def made(folder):
    """Writes one file or directory of each kind."""
    with tempfile.TemporaryDirectory() as scratch:
        begun = Path(scratch, "capture")
        for _ in range(2):
            with cdtp.Recorder(begun, bind=ANY) as recorder, cdtp.Sender("Det", connect=recorder.endpoints) as sender:
                for number in range(MERGED // 2):
                    sender.send(b"%d" % number, tags={"run": number})
                recorder.wait(count=MERGED // 2, timeout_s=20)
        capture.compact(begun, decode={"cdtp": {"tags": {"run": "bigint"}}})
        with cdtp.Recorder(begun, bind=ANY) as recorder, cdtp.Sender("Det", connect=recorder.endpoints) as sender:
            for number in range(PUBLISHED):
                sender.send(b"%d" % number)
            recorder.wait(count=PUBLISHED, timeout_s=20)
            recorder.publish()
            for number in range(LEFT):
                sender.send(b"%d" % number)
            recorder.wait(count=PUBLISHED + LEFT, timeout_s=20)
            recorder.flush(timeout_s=20)
            # As a recorder that is killed now would leave it.
            shutil.copytree(begun, folder / "capture", ignore=shutil.ignore_patterns(".lock"))
    with (
        mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], durable=folder / "queues") as server,
        mtl.Client(connect=server.endpoints, timeout_s=20) as client,
        client.writer("jobs") as writer,
    ):
        for body, properties in CONTENTS:
            writer.send(body, properties=properties)
        writer.flush(timeout_s=20)
    with contextlib.closing(cdt.SqliteStore(folder / "configs.db")) as store:
        for content in (b"{}", b'{"rate": 2}'):
            store.put("app-1", "endpoint-1", content, content_type="application/json", config_id=None)
    Users().adding("daq", "secret").write(folder / "users.toml")


@pytest.fixture(params=sorted(path.name for path in VERSIONS.iterdir()))
def old(request, tmp_path):
    """The files of a version."""
    return shutil.copytree(VERSIONS / request.param, tmp_path / "old")


def test_the_version_of_today_has_files():
    assert (VERSIONS / trunkline.__version__).is_dir()


def test_a_capture_is_read_recovered_and_recorded_to(old):
    path = old / "capture"
    count = MERGED + PUBLISHED + LEFT
    assert [row["seq"] for row in capture.open(path).rows()] == list(range(count))
    assert capture.recover(path).rows == LEFT
    assert capture.verify(path).problems == ()
    table = capture.open(path).decode("cdtp", tags={"run": "bigint"}).read_all()
    assert table["tag_run"].to_pylist()[:MERGED] == [*range(MERGED // 2)] * 2
    with cdtp.Recorder(path, bind=ANY) as recorder, cdtp.Sender("Det", connect=recorder.endpoints) as sender:
        sender.send(b"later")
        recorder.wait(count=1, timeout_s=20)
    capture.compact(path)
    assert [row["seq"] for row in capture.open(path).rows()] == list(range(count + 1))
    assert capture.verify(path).problems == ()


def test_queues_are_restored(old):
    with (
        mtl.Server(bind=ANY, anonymous=True, durable=old / "queues") as server,
        mtl.Client(connect=server.endpoints, timeout_s=20) as client,
        client.reader("jobs") as reader,
    ):
        reader.summon("jobs")
        found = [reader.receive(timeout_s=20) for _ in CONTENTS]
        assert [(content.body, content.properties["run"]) for content in found] == [
            (body, properties["run"]) for body, properties in CONTENTS
        ]


def test_configurations_are_there(old):
    with contextlib.closing(cdt.SqliteStore(old / "configs.db")) as store:
        config = store.get("app-1", "endpoint-1")
        assert config is not None
        assert config.content == b'{"rate": 2}'
        assert len(store.history("app-1", "endpoint-1")) == 2


def test_users_log_in(old):
    with (
        mtl.Server(bind=ANY, users=old / "users.toml", resources=["jobs"]) as server,
        mtl.Client(connect=server.endpoints, user="daq", password="secret", timeout_s=20) as client,
    ):
        assert client.command("Queue.Info", {"name": "jobs"}).status == 200


if __name__ == "__main__":
    today = VERSIONS / trunkline.__version__
    if not today.exists():
        today.mkdir(parents=True)
        made(today)
