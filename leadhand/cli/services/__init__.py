"""The commands on the user's own services: status, down, restart."""

from __future__ import annotations
