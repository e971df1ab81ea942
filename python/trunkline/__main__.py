"""The command `trunkline`, also ``python -m trunkline``."""

from __future__ import annotations

import sys
from typing import NoReturn

from trunkline.cli.process import endings

__all__ = ["main"]


def main() -> NoReturn:
    """Runs the command line and exits."""
    sys.exit(endings.guarded(_run))


def _run() -> None:
    from trunkline.cli.app import app

    app(prog_name="trunkline")


if __name__ == "__main__":
    main()
