"""REST routes for the artifacts of a session."""

from __future__ import annotations
