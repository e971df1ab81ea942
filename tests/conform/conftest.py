"""Runs checks inside the test, with the patience of the command."""

import importlib

import pytest

from trunkline.conform.checks import Limits, Subject
from trunkline.conform.checks import conform as run

# An answer is awaited for three seconds then: sixteen checks at a time share a processor with other tests.
SECONDS = 120.0


def judged(protocol, subject, only=(), seconds=SECONDS):
    """The results of the checks of a protocol, by the ids of the requirements."""
    if isinstance(subject, str):
        subject = Subject(subject)
    suite = importlib.import_module(f"trunkline.conform.{protocol}").SUITE
    return {result.id: result for result in run(suite, subject, only, Limits(seconds))}


def of(results, kind):
    """The ids of results of a kind."""
    return {name for name, result in results.items() if result.result == kind}


@pytest.fixture
def conform():
    return judged


@pytest.fixture
def ids():
    return of
