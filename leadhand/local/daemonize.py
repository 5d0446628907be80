"""Runs a command as a daemon, detached from the process that starts it.

Run as ``python -I -S daemonize.py COMMAND...``; it imports nothing that is slow.
"""

from __future__ import annotations

import os
import sys


def main(command: list[str]) -> None:
    """Run a command in the background: fork, let the parent exit, and execute it."""
    if os.fork():
        os._exit(0)
    try:
        os.execv(command[0], command)  # noqa: S606 - an argv, no shell
    except OSError as error:
        os.write(2, f"cannot run {command[0]!r}: {error.strerror}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
