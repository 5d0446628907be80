"""Graph documents: steps that call tools, with references to the results of other steps."""

from __future__ import annotations
