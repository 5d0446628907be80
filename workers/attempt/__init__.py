"""One attempt at a step: claim, heartbeat, body, park and settle."""

from __future__ import annotations
