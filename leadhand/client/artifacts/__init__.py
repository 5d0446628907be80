"""The operations of the clients on artifacts."""

from __future__ import annotations
