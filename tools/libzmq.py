"""Prints the path of the libzmq that pyzmq loads, for the engine's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

import zmq

maps = Path("/proc/self/maps")
if maps.exists():
    paths = [line.split()[-1] for line in maps.read_text().splitlines() if "libzmq" in line]
else:
    paths = [str(path) for path in (Path(zmq.__file__).parent / ".dylibs").glob("libzmq*.dylib")]
if not paths:
    sys.exit("pyzmq brings no libzmq of its own: set TRUNKLINE_LIBZMQ to the one it uses")
print(paths[0])
