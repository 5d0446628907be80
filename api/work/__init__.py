"""The local steps of a session over REST: claims, heartbeats and outcomes."""

from __future__ import annotations
