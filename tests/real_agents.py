"""The real agent programs, where `make agents` has put them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "agents"
BIN = FOLDER / "node_modules" / ".bin"
#: The accessibility checks of the dashboard, as one script.
AXE = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
PROGRAMS = ("claude", "codex")


def why_missing() -> str | None:
    """Why they cannot be run here; None where they can."""
    if shutil.which("node") is None:
        return "Node.js is not here"
    if not all((BIN / program).exists() for program in PROGRAMS):
        return "they are not installed; `make agents` does that"
    return None


def versions() -> str:
    """Which they are, by their lock file."""
    packages = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    named = {
        "claude": "node_modules/@anthropic-ai/claude-code",
        "codex": "node_modules/@openai/codex",
    }
    return " and ".join(f"{name} {packages[path]['version']}" for name, path in named.items())
