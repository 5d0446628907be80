"""Celery's Redis transport, for messages that may be lost: what is lost is let go.

kombu 5.7.0 gives back what a lost connection had not acknowledged, twice; the second time it has no
address any more, and the error that this raises ends the worker. The sweep sends each hint again.
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, QoS, Transport

log = logging.getLogger(__name__)


class HintQoS(QoS):
    """Knows which messages are not acknowledged yet."""

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back what can be given back."""
        try:
            super().restore_unacked_once(stderr)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the worker
            log.warning("hints not given back", extra={"why": type(error).__name__})


class HintChannel(Channel):
    """A channel whose end ends nothing else."""

    QoS = HintQoS


class HintTransport(Transport):
    """What `redis://` means to our Celery."""

    Channel = HintChannel


def install() -> None:
    """Let every connection to a Redis broker, from now on, be one of ours."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{HintTransport.__name__}"
