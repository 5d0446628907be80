"""The tasks and canvases that Celery carries."""

from __future__ import annotations
