"""The fixture that runs a body."""

from __future__ import annotations

from tests.unit.workers.bodies.running import body

__all__ = ["body"]
