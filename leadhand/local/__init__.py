"""The embedded services: Redis, API and worker under a supervisor."""

from __future__ import annotations
