"""What runs inside a worker."""

from __future__ import annotations
