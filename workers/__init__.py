"""The code that runs inside a worker: attempts, agents, checkers, tools, processes and folders."""

from __future__ import annotations
