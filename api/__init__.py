"""The HTTP interface: REST, events and the dashboard."""

from __future__ import annotations

from api.application import create_app

__all__ = ["create_app"]
