"""Celery's Redis transport, for messages that may be lost: what is lost is let go.

kombu's own keeps each message that a worker has taken in a hash until it is acknowledged, so that
somebody finds it a visibility time-out after that worker's death: two transactions a message, half
of the time of a worker's parent. Here the sweep finds each step whose hint came to nothing, within
seconds, so a message is in a queue or it is gone.
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, Transport
from kombu.transport.virtual import QoS

log = logging.getLogger(__name__)


class HintQoS(QoS):
    """Knows in memory which messages are not acknowledged yet."""

    def restore_unacked(self) -> None:
        """Give back what can be given back, at the end of a connection; the rest is let go."""
        lost: Any = super().restore_unacked()
        # To nobody's caller: kombu would write what it is told of to a file.
        if lost:
            log.warning("hints not given back", extra={"count": len(lost)})


class HintChannel(Channel):
    """A channel whose end ends nothing else."""

    ack_emulation = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.QoS = HintQoS  # type: ignore[assignment]  # kombu does the same, of its own


class HintTransport(Transport):
    """What `redis://` means to our Celery."""

    Channel = HintChannel


def install() -> None:
    """Let every connection to a Redis broker, from now on, be one of ours."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{HintTransport.__name__}"
