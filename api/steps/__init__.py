"""Single steps of a session over REST, and sessions that are made from others."""

from __future__ import annotations
