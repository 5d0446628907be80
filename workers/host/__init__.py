"""A worker's parent process: joining the fleet, inventory, drain, dead workers, task events."""

from __future__ import annotations
