"""Finds free ports on loopback."""

from __future__ import annotations

import socket


def free_port(wanted: int = 0) -> int:
    """Returns the wanted port if it is free, otherwise one that the system chooses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
