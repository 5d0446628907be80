"""Formats the result of a graph as text (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from leadhand.cli.render.result_text import flow_summary
from leadhand.cli.render.tables import table
from leadhand.models.views.result import ResultView


def graph_summary(result: ResultView) -> Iterator[str]:
    """Yields lines: how a graph ended, what its steps returned, and commands to run next."""
    lines = list(flow_summary(result))
    yield lines[0]
    if result.results:
        rows = [
            [name, json.dumps(value, ensure_ascii=False)] for name, value in result.results.items()
        ]
        yield from table(["STEP", "RESULT"], rows)
    yield from lines[1:]


def call_summary(result: ResultView) -> Iterator[str]:
    """Formats what the only step of a session returned, or how it failed."""
    if result.status != "completed":
        yield from flow_summary(result)
        return
    value = next(iter(result.results.values()), None)
    yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
