"""What Rust would have of the made-up protocol: its name, its columns and its decoder, in Python.

Run with the extension, the directory of a package that the protocol was added to, and one for captures, it writes the lists of that
package and looks at its faces.
"""

import importlib.machinery
import importlib.util
import runpy
import sys
import types
from pathlib import Path


class Message:
    """A letter, which is a frame."""

    def __init__(self, letter):
        self.type = "LETTER"
        self.letter = letter


# What `_native.protocols` says of it.
PROTOCOL = types.SimpleNamespace(
    name="sixth",
    one_way=True,
    options={"payload": False},
    inputs=(("header", "always", ()),),
    kept=("capture_id", "seq", "received_at_ns"),
    error_kinds=("bad_letter",),
    column_kinds=(),
    message_types=("LETTER",),
    ddl="`type` STRING, `letter` STRING, `error` STRING",
)


def load(path):
    """The extension, which knows one more protocol."""
    loader = importlib.machinery.ExtensionFileLoader("trunkline._native", str(path))
    native = importlib.util.module_from_spec(importlib.util.spec_from_file_location("trunkline._native", loader=loader))
    sys.modules["trunkline._native"] = native
    loader.exec_module(native)
    others, decode = native.protocols, native.decode
    Message.__module__ = "trunkline.sixth"
    native.sixth = types.ModuleType("trunkline._native.sixth")
    native.sixth.Message = Message
    native.protocols = lambda: [*others(), PROTOCOL]

    def decoded(protocol, frames, topic=None):
        return [Message(bytes(frames[0]).decode())] if protocol == "sixth" else decode(protocol, frames, topic)

    native.decode = decoded


if __name__ == "__main__":
    extension, root, _ = map(Path, sys.argv[1:])
    sys.path[:0] = [str(root / "python"), str(root)]
    load(extension)
    runpy.run_path(str(root / "tools" / "lists.py"), run_name="__main__")
    # What was written is read.
    for name in [*sys.modules]:
        if name.startswith("trunkline") and not name.startswith("trunkline._native"):
            del sys.modules[name]
    runpy.run_path(str(Path(__file__).with_name("faces.py")))
