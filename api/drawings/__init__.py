"""The REST route for drawings of sessions."""

from __future__ import annotations
