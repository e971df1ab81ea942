"""Released Constellation satellites as peers: `make peers` installs each release in an environment of its own."""

import uuid

import pytest
from satellite import PEERS, Satellite


@pytest.fixture
def group():
    """A Constellation of the test's own: the port of CHIRP is shared."""
    return f"trunkline-{uuid.uuid4().hex}"


@pytest.fixture
def satellite(group, tmp_path):
    """Starts satellites; they end with the test."""
    running = []

    def start(release, command, name="s1"):
        assert (PEERS / release).is_dir(), "the released peers are missing: run `make peers`"
        running.append(Satellite(release, command, name, group, tmp_path / f"{name}.log"))
        return running[-1]

    yield start
    for each in running:
        each.close()
