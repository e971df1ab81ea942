"""Processes that are forked while roles run: those are their parent's, which goes on, and the child neither hangs nor harms."""

import subprocess
import sys

import pytest

OPEN = {
    "mc0": """
from trunkline import mc0

def opened():
    middleware = mc0.Middleware(bind="tcp://127.0.0.1:*")
    connector = mc0.Connector(connect=middleware.endpoints[0])
    connector.subscribe("t")
    return connector, middleware

def uses(connector, middleware):
    return [
        lambda: connector.put("t", b"x"),
        lambda: connector.receive(timeout_s=1),
        lambda: connector.subscribe("u"),
        lambda: middleware.wait(timeout_s=1),
    ]

def works(connector, middleware):
    connector.put("t", b"x")
    assert connector.receive(timeout_s=20).body == (b"x",)
""",
    "mtl": """
from trunkline import mtl

def opened():
    server = mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"])
    client = mtl.Client(connect=server.endpoints[0])
    reader = client.reader("jobs")
    reader.summon("jobs")
    writer = client.writer("jobs")
    writer.send(b"held")
    global held
    held = reader.receive(timeout_s=20)
    return writer, reader, client, server

def uses(writer, reader, client, server):
    return [
        lambda: writer.send(b"x"),
        lambda: writer.flush(timeout_s=1),
        lambda: reader.receive(timeout_s=1),
        lambda: client.command("Queue.Info", {"name": "jobs"}),
        held.confirm,
        held.reject,
        lambda: server.wait(timeout_s=1),
    ]

def works(writer, reader, client, server):
    writer.send(b"x")
    writer.flush(timeout_s=20)
    content = reader.receive(timeout_s=20)
    assert content.body == b"x"
    content.confirm()
""",
    "cdt": """
from trunkline import cdt

def opened():
    target = cdt.Target("cdp", servers="memory://fork")
    source = cdt.Source("cmx", target="cdp", servers="memory://fork")
    return source.watch("app", "e-1"), source, target

def uses(watch, source, target):
    return [
        lambda: watch.receive(timeout_s=1),
        lambda: source.pull("app", "e-1", timeout_s=1),
        lambda: source.push("app", "e-1", b"{}"),
        lambda: target.put("app", "e-1", b"{}"),
        lambda: target.wait(timeout_s=1),
    ]

def works(watch, source, target):
    source.push("app", "e-1", b"{}")
    assert source.pull("app", "e-1").content == b"{}"
""",
}

PLAY = """
import gc, os, signal
from trunkline import ClosedError

def play():
    roles = opened()
    for number in range(5):
        child = os.fork()
        if child == 0:
            # A wait without end is killed, and fails the test.
            signal.alarm(20)
            code = 1
            try:
                for use in uses(*roles):
                    try:
                        use()
                    except ClosedError:
                        continue
                    os._exit(3)
                own = opened()
                works(*own)
                for role in (*own, *roles) if number % 2 else own:
                    role.close()
                del own, roles, role, use
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        works(*roles)
    for role in roles:
        role.close()

play()
"""


@pytest.mark.parametrize("protocol", OPEN)
def test_a_child_leaves_the_roles_of_its_parent_alone_and_has_its_own(protocol):
    command = [sys.executable, "-X", "dev", "-c", OPEN[protocol] + PLAY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
