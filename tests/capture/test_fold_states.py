"""States of folds as releases have written them: a checkpoint of a stream goes on after an upgrade.

`python tests/capture/test_fold_states.py` writes the states of this version, of folds that have none yet.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from test_folds import batches

from peers.together import ALPHABET
from trunkline._native.analysis import Fold

STATES = Path(__file__).parents[1] / "data" / "states"

# One of sixteen buckets of a stream, as Spark keeps them.
BUCKETS = 16


def parts(name):
    """Messages before the state was written, and after it."""
    messages = Random(name).choices(ALPHABET.get(name, ALPHABET["contents"]), k=200)
    return messages[:120], messages[120:]


def given(name, messages, first):
    """What a fold is given of messages: a second step is given what the first one emits."""
    if name != "deliveries":
        return list(batches("contents" if name == "settlements" else name, messages, 1 << 16, first))
    before = Fold("settlements", buckets=BUCKETS)
    found = [each for batch in batches("contents", messages, 1 << 16, first) for each in before.record(batch)]
    return found + before.emit_open()


def stepped(fold, name, messages, first):
    """What a micro-batch emits."""
    found = [each for batch in given(name, messages, first) for each in fold.record(batch)]
    return [each for batch in (*found, *fold.emit_open()) for each in batch.to_pylist()]


def begun(name):
    """A fold that has seen the first part."""
    fold = Fold(name, buckets=BUCKETS)
    stepped(fold, name, parts(name)[0], 0)
    return fold


def version(state, name):
    at = len(b"TLAS") + 1 + len(name)
    return int.from_bytes(state[at : at + 2], "big")


# The folds of which a stream keeps states.
STEPS = [step for name in Fold.NAMES for step in Fold(name).steps]

# In these a fault of their version had dropped what a later message settles: they go on, with other fates.
FAULTY = ["settlements-6"]


@pytest.mark.parametrize("name", STEPS)
def test_the_version_of_today_has_a_state(name):
    assert (STATES / f"{name}-{version(begun(name).state(), name)}").exists()


@pytest.mark.parametrize("path", sorted(STATES.iterdir()), ids=lambda path: path.name)
def test_a_state_of_each_version_goes_on_as_if_it_had_never_stopped(path):
    name = path.name.rpartition("-")[0]
    fold, restored = begun(name), Fold(name, buckets=BUCKETS)
    restored.restore(path.read_bytes())
    before, after = parts(name)
    emitted = [stepped(each, name, after, len(before)) for each in (restored, fold)]
    last = [[row for batch in each.finish() for row in batch.to_pylist()] for each in (restored, fold)]
    assert all(emitted)
    if path.name not in FAULTY:
        assert emitted[0] == emitted[1]
        assert last[0] == last[1]


if __name__ == "__main__":
    for each in STEPS:
        written = begun(each).state()
        path = STATES / f"{each}-{version(written, each)}"
        if not path.exists():
            path.write_bytes(written)
