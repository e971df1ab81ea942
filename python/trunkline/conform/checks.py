"""The form of a suite of checks, and how it is run: within a time, and within a number of bytes."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from trunkline._locations import without_secrets
from trunkline.errors import LocalProtocolError, TrunklineError

__all__ = [
    "BYTES",
    "SECONDS",
    "Bench",
    "Check",
    "Failed",
    "Keys",
    "Limits",
    "Message",
    "Result",
    "Skipped",
    "Subject",
    "Suite",
    "TimeIsUp",
    "TooMuch",
    "Transcript",
    "conform",
]

# How long all checks may take, and how many bytes the subject may send meanwhile.
SECONDS = 120.0
BYTES = 64 << 20

Verdict = Literal["pass", "fail", "skip"]

# What MTL logs in by, from which a password can be guessed.
_SECRET = re.compile(rb'("(?:response|challenge)"\s*:\s*")[^"]+')

# How much of a message a result shows.
_FRAME_BYTES = 1024
_START_BYTES = 256
_FRAMES = 32
_MESSAGES = 40


class Failed(Exception):  # noqa: N818 - a result, not an error
    """The subject did something else than the clause wants."""


class Skipped(Exception):  # noqa: N818 - as above
    """The clause cannot be judged."""


class TimeIsUp(Exception):  # noqa: N818 - as above
    """The time for all checks is over."""


class TooMuch(Exception):  # noqa: N818 - as above
    """The subject has sent more bytes than all checks may cost."""


class Keys(NamedTuple):
    """Keys of CURVE.

    Attributes:
        public: Our public key.
        secret: Our secret key.
        server: The subject's public key.
    """

    public: bytes
    secret: bytes
    server: bytes


@dataclass(frozen=True)
class Subject:
    """The implementation under test.

    Attributes:
        endpoint: Where it listens.
        user: The user to log in as.
        password: The password.
        curve: The keys of CURVE, 32 bytes each; None if it is not encrypted.
        target: The name of a target, of CDT.
    """

    endpoint: str
    user: str | None = None
    password: str | None = None
    curve: Keys | None = None
    target: str | None = None


class Limits:
    """What all checks together may take.

    Args:
        seconds: The time.
        size: The bytes that the subject may send.
    """

    def __init__(self, seconds: float = SECONDS, size: int = BYTES) -> None:
        self._end = time.monotonic() + seconds
        self._left = size
        # For an answer, and for one that must not come.
        self.patience_s = min(3.0, max(0.2, seconds / 40))
        self.silence_s = self.patience_s / 10

    @property
    def left_s(self) -> float:
        """The time that is left."""
        return max(self._end - time.monotonic(), 0.0)

    def end(self) -> None:
        """Ends the time."""
        self._end = time.monotonic()

    def take(self, size: int) -> bool:
        """Counts bytes of the subject, in any thread; False once they are too many."""
        self._left -= size
        return self._left >= 0

    def wait(self, seconds: float | None = None) -> Iterator[float]:
        """Steps of a wait, each with the time that is left of it; ends when the wait is over.

        Raises:
            TimeIsUp: The time for all checks is over.
            TooMuch: The subject has sent too much.
        """
        end = time.monotonic() + (self.patience_s if seconds is None else seconds)
        while True:
            self.check()
            left = end - time.monotonic()
            if left <= 0:
                return
            yield min(left, 0.05)

    def check(self) -> None:
        """Raises `TooMuch` or `TimeIsUp` once a limit is reached."""
        if self._left < 0:
            raise TooMuch
        if not self.left_s:
            raise TimeIsUp


@dataclass(frozen=True)
class Message:
    """A message in a result.

    Attributes:
        peer: Which of our peers has sent or received it.
        frames: Its frames, shortened.
    """

    peer: str
    frames: list[str | bytes]


@dataclass
class Transcript:
    """What our peers have sent and received during a check."""

    sent: list[Message] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)

    def add(self, kept: list[Message], peer: str, frames: Sequence[bytes]) -> None:
        """Adds a message to either list; of very many only the first ones."""
        if len(kept) < _MESSAGES:
            shown: list[str | bytes] = [*map(_shortened, frames[:_FRAMES])]
            if len(frames) > _FRAMES:
                shown.append(f"… ({len(frames):,} frames)")
            kept.append(Message(peer, shown))


def _shortened(frame: bytes) -> str | bytes:
    shown = _SECRET.sub(rb"\1...", bytes(frame[: 2 * _FRAME_BYTES]))
    if len(frame) <= _FRAME_BYTES:
        return shown
    text = shown[:_START_BYTES].decode("utf-8", "ignore")
    start = text if text.isprintable() and text.isascii() else shown[: _START_BYTES // 8].hex()
    return f"{start}… ({len(frame):,} bytes)"


class Bench(Protocol):
    """The peers of a suite.

    Attributes:
        transcript: What they have sent and received since the last `clear`.
    """

    transcript: Transcript

    def speaks(self) -> None:
        """Makes sure that the subject speaks the protocol.

        Raises:
            TrunklineError: It does not, or cannot be reached.
        """

    def clear(self) -> None:
        """Closes the peers of a check."""

    def close(self) -> None:
        """Closes everything."""


@dataclass(frozen=True)
class Result:
    """The result of a check.

    Attributes:
        id: The id of the requirement.
        title: What it is about.
        result: Whether the subject does what the clause wants; `skip` if that cannot be judged.
        sent: What our peers have sent.
        received: What they have received.
        wanted: What the clause wants.
        reason: Why it failed or was skipped.
    """

    id: str
    title: str
    result: Verdict
    sent: list[Message]
    received: list[Message]
    wanted: str
    reason: str | None


AnyBench = TypeVar("AnyBench", bound=Bench)


@dataclass(frozen=True)
class Check(Generic[AnyBench]):
    """A check of a requirement.

    Attributes:
        id: The id of the requirement.
        title: What it is about.
        wanted: What the clause wants.
        needs: The requirements without which it cannot be judged.
        run: Judges it: returns, or raises `Failed` or `Skipped`.
    """

    id: str
    title: str
    wanted: str
    needs: tuple[str, ...]
    run: Callable[[AnyBench], None]


class Suite(Generic[AnyBench]):
    """The checks of a protocol, in the order in which they are run.

    Args:
        what: What is tested, with its article.
        bench: Makes its peers.
        elsewhere: The requirements that cannot be judged from outside, each with the reason.
        checked: Raises `LocalProtocolError` if a subject cannot be tested as it is given.
    """

    def __init__(
        self,
        what: str,
        bench: Callable[[Subject, Limits], AnyBench],
        elsewhere: dict[str, str],
        checked: Callable[[Subject], None] = lambda _: None,
    ) -> None:
        self.what = what
        self.bench = bench
        self.elsewhere = elsewhere
        self.checked = checked
        self.checks: list[Check[AnyBench]] = []

    def check(
        self, name: str, title: str, wanted: str, *, needs: tuple[str, ...] = ()
    ) -> Callable[[Callable[[AnyBench], None]], Callable[[AnyBench], None]]:
        """Adds the function below as the check of a requirement."""

        def add(run: Callable[[AnyBench], None]) -> Callable[[AnyBench], None]:
            self.checks.append(Check(name, title, wanted, needs, run))
            return run

        return add

    def chosen(self, only: Sequence[str]) -> list[Check[AnyBench]]:
        """The checks of these requirements; all if there are none.

        Raises:
            LocalProtocolError: There is no such check.
        """
        known = {check.id: check for check in self.checks}
        for name in only:
            if name in self.elsewhere:
                message = f"{name} cannot be judged from outside: {self.elsewhere[name]}"
                raise LocalProtocolError(message)
            if name not in known:
                message = f"there is no requirement {name!r} of {self.what}: --list shows them"
                raise LocalProtocolError(message)
        return [check for check in self.checks if not only or check.id in only]


def conform(
    suite: Suite[Any], subject: Subject, only: Iterable[str] = (), limits: Limits | None = None
) -> Iterator[Result]:
    """Runs the checks of a suite, and gives the result of each as it comes.

    Raises:
        LocalProtocolError: There is no such check.
        TrunklineError: The subject cannot be reached, or does not speak the protocol.
    """
    chosen = suite.chosen([*only])
    limits = Limits() if limits is None else limits
    bench = suite.bench(subject, limits)
    try:
        try:
            bench.speaks()
        except (Failed, TimeIsUp, TooMuch) as error:
            what = f": {error}" if isinstance(error, Failed) else f" {_WHY[type(error)]} before any check"
            message = f"{without_secrets(subject.endpoint)}{what}"
            raise TrunklineError(message) from None
        finally:
            bench.clear()
            bench.transcript = Transcript()
        # The requirements that failed, and those that could not be judged for it.
        unmet: set[str] = set()
        stopped: str | None = None
        for check in chosen:
            missing = next((need for need in check.needs if need in unmet), None)
            if stopped is None and missing is None:
                result, why = _run(check, bench)
            else:
                result, why = "skip", stopped or f"it needs {missing}, which is not met"
                unmet.add(check.id)
            transcript, bench.transcript = bench.transcript, Transcript()
            yield Result(check.id, check.title, result, transcript.sent, transcript.received, check.wanted, why)
            if result == "fail":
                unmet.add(check.id)
                stopped = stopped or _gone(bench, check.id)
    finally:
        bench.close()


_WHY: dict[type[Exception], str] = {
    TimeIsUp: "took all the time (--seconds)",
    TooMuch: f"sent more than {BYTES >> 20} MiB",
}


def _run(check: Check[Any], bench: Bench) -> tuple[Verdict, str | None]:
    try:
        check.run(bench)
    except Failed as failed:
        return "fail", str(failed)
    except Skipped as skipped:
        return "skip", str(skipped)
    except TimeIsUp:
        return "skip", "the time is over: --seconds gives more"
    except TooMuch:
        return "fail", f"it {_WHY[TooMuch]}"
    except TrunklineError as error:
        return "fail", str(error)
    except (LookupError, ValueError, TypeError, struct.error) as error:
        return "fail", f"what came cannot be read: {type(error).__name__}: {error}"
    except OSError as error:
        return "fail", f"the connection failed: {error.strerror or error}"
    finally:
        bench.clear()
    return "pass", None


def _gone(bench: Bench, after: str) -> str | None:
    """Why no more checks can be made after one that failed; None if they can."""
    try:
        bench.speaks()
    except (Failed, TrunklineError, OSError):
        return f"it does not answer any more since {after}"
    except TooMuch:
        return f"it {_WHY[TooMuch]}"
    except TimeIsUp:
        return None
    finally:
        bench.clear()
        bench.transcript = Transcript()
    return None
