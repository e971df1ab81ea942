"""The made-up protocol: a node, judged by its endpoint alone."""

from __future__ import annotations

from trunkline.conform.checks import Failed, Limits, Subject, Suite, Transcript

__all__ = ["SUITE"]


class _Bench:
    """A peer that connects to nothing."""

    def __init__(self, subject: Subject, limits: Limits) -> None:  # noqa: ARG002 - as it is called
        self.subject = subject
        self.transcript = Transcript()

    def speaks(self) -> None:
        """Makes sure of nothing."""

    def clear(self) -> None:
        """Closes nothing."""

    def close(self) -> None:
        """Closes nothing."""


SUITE = Suite("a node of sixth", _Bench, {})


@SUITE.check("SIXTH-01", "A node has an address", "an address")
def _address(bench: _Bench) -> None:
    if not bench.subject.endpoint:
        message = "it is empty"
        raise Failed(message)
