"""Uploads of artifacts by workers that do not share the folder of artifacts with the API."""

from __future__ import annotations

from app.operations.artifacts.uploads import Uploads

__all__ = ["Uploads"]
