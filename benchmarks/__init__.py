"""What Leadhand costs, measured: commands, bytes and memory, never asserted by the clock."""

from __future__ import annotations
