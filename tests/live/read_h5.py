"""Prints what a release's H5DataWriter wrote, as JSON; run by that release's Python, which has h5py."""

import json
import sys

import h5py
import numpy as np


def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value


def content(item):
    """A dataset: its bytes and attributes. A group: what is in it, and its attributes."""
    attributes = {name: plain(value) for name, value in item.attrs.items()}
    if isinstance(item, h5py.Dataset):
        value = item[()]
        data = value.tobytes().hex() if isinstance(value, np.ndarray) else plain(value)
        return {"data": data, "attributes": attributes}
    return {"items": {name: content(item[name]) for name in item}, "attributes": attributes}


with h5py.File(sys.argv[1]) as file:
    print(json.dumps(content(file)))
