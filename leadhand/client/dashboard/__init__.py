"""The operations of the clients for people who watch all sessions."""

from __future__ import annotations
