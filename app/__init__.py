"""What a workflow is, what may follow what, and the store."""

from __future__ import annotations
