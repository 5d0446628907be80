"""The HTTP API: REST, event streams and the dashboard."""

from __future__ import annotations

from api.application import create_app

__all__ = ["create_app"]
