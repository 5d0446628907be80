"""What a call selects, and how a client repeats the selection."""

from __future__ import annotations
