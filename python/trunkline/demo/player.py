"""The process of one sender of the demo: ``python -m trunkline.demo.player NAME``.

It says where it listens, begins at a line on standard input, says what it has sent, and ends when standard input does:
so it never outlives the demo, however that ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

from trunkline import cdtp
from trunkline.demo.traffic import PLAYERS, Player, Tally, frames_of

_LOOK_S = 0.05


def main() -> None:
    """Plays the part named on the command line."""
    # Ctrl-C reaches every process of the terminal; the demo ends its players itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # No log of the recorder's end when the demo is interrupted.
    logging.disable()
    player = next(player for player in PLAYERS if player.name == sys.argv[1])
    with cdtp.Sender(player.name, bind="tcp://127.0.0.1:*") as sender:
        _say(sender.endpoints[0])
        if not sys.stdin.readline():
            os._exit(1)
        threading.Thread(target=_end_with_the_demo, daemon=True).start()
        tally = Tally()
        _play(player, sender, tally)
        while sender.stats.queued:
            time.sleep(_LOOK_S)
    # Closed, so that the receiver has everything before the demo counts.
    _say(tally.to_json())


def _play(player: Player, sender: cdtp.Sender, tally: Tally) -> None:
    began = time.monotonic()
    for frames in frames_of(player, tally):
        if player.rate is not None and tally.wire % 100 == 0:
            time.sleep(max(0.0, began + tally.wire / player.rate - time.monotonic()))
        sender.send_frames(frames)


def _say(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)


def _end_with_the_demo() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
