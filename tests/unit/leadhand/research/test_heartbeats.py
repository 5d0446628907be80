"""When the heartbeats of a local worker are sent."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, cast

from leadhand.client.client import Client
from leadhand.models.local_work import BeatWork
from leadhand.models.views.session import WorkGrant
from leadhand.research.local_worker import Heartbeats


class Api:
    """Answers heartbeats, and notes that there was one."""

    def __init__(self) -> None:
        self.had_beat = threading.Event()

    def beat_work(self, _session: str, _beat: BeatWork) -> Any:
        self.had_beat.set()
        return type("Answer", (), {"order": "ok"})


LOG = logging.getLogger("test")


def test_attempt_with_a_short_lease_gets_its_heartbeat_within_the_lease() -> None:
    api, lease_s = Api(), 0.3
    grant = WorkGrant(
        address="step", step="step", tool="tool", arguments={}, fence=1, nonce="n" * 8, attempt=1,
        timeout_s=5, lease_s=lease_s, key="ab12cd34:step",
    )  # fmt: skip
    with Heartbeats(cast("Client", api), "ab12cd34", lambda *_: None, LOG) as beats:
        began = time.monotonic()
        beats.keep(grant)
        assert api.had_beat.wait(10)
        # Without a wake-up the thread would sleep its longest pause first.
        assert time.monotonic() - began < 1.5
