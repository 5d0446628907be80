"""What to do about a session that has ended, by what failed."""

from __future__ import annotations
