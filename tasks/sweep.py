"""The sweep's thread: one in every worker host and API process, none of which is the leader."""

from __future__ import annotations

from functools import partial

from app.engine import Engine
from app.sweeping import sweep
from tasks.rounds import Rounds

#: Seconds between looks; the store lets only one of all sweepers look at a time.
EVERY_S = 1.0


class Sweeper(Rounds):
    """Sweeps until it is stopped."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("sweep", EVERY_S, partial(sweep, engine))
