"""A workflow that searches papers, fetches two of them side by side, and writes a report."""

from __future__ import annotations

from typing import Any

from tests.integration.research.conftest import step


async def search(query: str) -> dict[str, Any]:
    return {"urls": [f"{query}-1", f"{query}-2"], "found": 2}


async def fetch(url: str) -> dict[str, Any]:
    return {"text": f"text of {url}"}


def report(texts: list[str], found: int) -> str:
    """An ordinary function is a tool, too."""
    return f"{found}: {'; '.join(texts)}"


PAPERS = (
    step("search", arguments={"query": "agents"}),
    step("first", "fetch", arguments={"url": "${search.urls[0]}"}),
    step("second", "fetch", arguments={"url": "${search.urls[1]}"}),
    step(
        "report",
        arguments={"texts": ["${first.text}", "${second.text}"], "found": "${search.found}"},
    ),
)
