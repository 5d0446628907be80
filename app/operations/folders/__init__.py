"""The folders that single sessions have to themselves."""

from __future__ import annotations
