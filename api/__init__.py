"""The HTTP interface: REST, events and the dashboard."""

from __future__ import annotations
