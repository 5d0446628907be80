"""The Celery side: application, tasks, canvas, result backend and periodic threads."""

from __future__ import annotations
