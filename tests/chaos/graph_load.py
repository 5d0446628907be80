"""Graph documents for the chaos runs, drawn from a seed, each with the end that it must come to."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.chaos.ends import End


def draw_graph(rng: Random) -> tuple[End, dict[str, Any]]:
    """A list with a limit, failures of a non-critical step with retries, a condition, a join."""
    items = [{"n": n, "on": rng.random() < 0.7} for n in range(rng.choice((0, 1, 5, 30)))]
    is_bad = rng.random() < 0.2
    steps: list[dict[str, Any]] = [
        {"name": "search", "arguments": {"items": items, "found": bool(items)}},
        {"name": "fetch all", "for_each": "${search.items}", "at_once": rng.randint(1, 4),
         "critical": False, "when": "${item.on}", "expect": "success",
         "retries": rng.randint(0, 2), "backoff_s": 0.1,
         "arguments": {"success": "${item.on}", "n": "${item.n}"}},
        {"name": "broken", "critical": False, "retries": rng.randint(0, 2), "backoff_s": 0.1,
         "expect": "success", "arguments": {"success": False, "error": "it is broken"}},
        {"name": "any", "depends_on": ["broken", "search"], "join": "any"},
        {"name": "never", "depends_on": ["broken"], "join": "all"},
        {"name": "count", "for_each": '${steps["fetch all"]}', "arguments": {"one": "${item}"}},
        {"name": "report", "expect": "success", "depends_on": ["any", "never"],
         "arguments": {"success": not is_bad, "all": "${count}", "why": "${broken.error}"}},
    ]  # fmt: skip
    document = {"kind": "graph", "steps": [{"tool": "echo", **step} for step in steps]}
    return End("failed", "failed_step") if is_bad else End(iterations=0), document
