"""A person's way with tools: a file in the folder, listed, used by a flow, refused where wrong."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.acceptance.project import Project
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

CODE = '''
from pathlib import Path

def slug(title: str, limit: int = 80) -> str:
    """Makes a file of that title."""
    name = "-".join(title.lower().split())[:limit]
    Path(name).touch()
    return name
'''


@pytest.mark.slow
def test_a_persons_way_with_tools(make_project: Callable[..., Project]) -> None:
    project = make_project()
    project.write("tools/text.py", CODE)
    step = {"type": "tool", "tool": "text:slug", "arguments": {"title": "${inputs.title}"}}
    flow = {"inputs": {"title": "A Long Title"}, "steps": [{**step, "label": "slug"}]}
    project.write("flows/name.json", json.dumps(flow))

    def listed() -> str:
        return project.leadhand("tools", timeout=90).out

    wait_until(lambda: "text:slug" in listed(), timeout=60)
    (line,) = (line for line in listed().splitlines() if line.startswith("text:slug"))
    shown = "function title: str, [limit: int] local Makes a file of that title."
    assert " ".join(line.split()[1:]) == shown
    ran = project.leadhand("flow", "run", "name", "--json", timeout=60)
    assert ran.code == 0, ran.err
    assert (project.folder / "a-long-title").is_file()

    flow["steps"] = [{**step, "tool": "text:gone"}, {**step, "arguments": {}}]
    project.write("flows/name.json", json.dumps(flow))
    refused = project.leadhand("flow", "run", "name")
    assert refused.code == 1
    assert "steps[0].tool" in refused.err
    assert "known: echo, noop, text:slug" in refused.err
