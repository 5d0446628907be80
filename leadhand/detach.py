"""Runs a command as nobody's child, so that who starts it need not stay, nor bury it.

Run as ``python -I -S detach.py COMMAND...``; it imports nothing that takes time.
"""

from __future__ import annotations

import os
import sys


def main(command: list[str]) -> None:
    """Leave the command behind and end."""
    if os.fork():
        os._exit(0)
    try:
        os.execv(command[0], command)  # noqa: S606 - an argv, no shell
    except OSError as error:
        os.write(2, f"cannot run {command[0]!r}: {error.strerror}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
