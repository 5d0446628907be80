"""The part of the clients that claims and settles the local steps of a session."""

from __future__ import annotations
