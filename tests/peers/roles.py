"""Every role there is, as the package lists them, and how each is opened where nothing is wrong."""

import functools

from tools.options import roles

ANY = "tcp://127.0.0.1:*"
NOWHERE = "tcp://127.0.0.1:9"

_GIVEN = {
    "cdtp.Sender": {"name": "Det", "bind": ANY, "linger_s": 0},
    "cdtp.Receiver": {"bind": ANY},
    "cdtp.Recorder": {"bind": ANY},
    "chirp.Beacon": {"group": "lab", "port": 0},
    "dcp.Broker": {"bind": ANY},
    "dcp.Worker": {"service": b"echo", "connect": NOWHERE},
    "dcp.Client": {"connect": NOWHERE},
    "mc0.Connector": {"connect": NOWHERE},
    "mc0.Middleware": {"bind": ANY},
    "mtl.Server": {"bind": ANY, "anonymous": True},
    "mtl.Client": {"timeout_s": 0.1},
    "cdt.Target": {"name": "cdp", "store": ":memory:"},
    "cdt.Source": {"name": "cmx", "target": "cdp"},
    "cdt.Recorder": {},
}

KINDS = {f"{role.protocol}.{role.name}": role for role in roles()}

assert set(KINDS) == set(_GIVEN), "every role has to be opened here"


def opened(name, folder, twin="", /, **given):
    """A role of this name, or its `twin`; `folder` is for what it writes. An MTL client has to be given its server."""
    chosen = {**_GIVEN[name], **given}
    if name.startswith("cdt."):
        chosen.setdefault("servers", f"memory://{folder}")
    if name == "cdtp.Recorder":
        chosen.setdefault("path", folder / "capture")
    if name == "cdt.Recorder":
        chosen.setdefault("directory", folder / "capture")
    if name == "mtl.Client":
        chosen.setdefault("connect", NOWHERE)
    role = KINDS[name]
    return (role.twin if twin else role.kind)(**chosen)


def openers(folder):
    """All of them, by name, each as a function that takes what is different."""
    return {name: functools.partial(opened, name, folder) for name in KINDS}
