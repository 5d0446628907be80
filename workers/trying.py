"""Asks one agent here, as a worker would: ``python -P -m workers.trying NAME``.

The prompt comes on standard input, what came of it goes to standard output as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path

from app.errors import LeadhandError
from app.outcomes import Outcome
from app.program import Action
from app.settings import Settings
from workers.agents.book import AgentBook
from workers.agents.usable import why_unusable
from workers.body import BodyTask, run_body

#: What a step may take unless it says otherwise.
_TIMEOUT_S = 3600.0


def main(arguments: list[str]) -> int:
    """Ask, and tell what came of it; 1 where there is nobody to ask."""
    options = argparse.ArgumentParser()
    options.add_argument("name")
    options.add_argument("--model")
    options.add_argument("--timeout", type=float, default=_TIMEOUT_S)
    chosen = options.parse_args(arguments)
    try:
        settings = Settings.from_env()
        book = AgentBook.load([file for file in settings.agents_files if file.is_file()])
        why = why_unusable(book.agent(chosen.name))
    except LeadhandError as error:
        return _tell({"error": str(error)})
    if why is not None:
        return _tell({"error": f"agent {chosen.name!r} cannot be used here: {why}"})
    with tempfile.TemporaryDirectory(prefix="leadhand-try-") as spill:
        outcome = _asked(book, chosen, sys.stdin.read(), Path(spill))
    return _tell(outcome.model_dump(mode="json", exclude_none=True))


def _asked(book: AgentBook, chosen: argparse.Namespace, prompt: str, spill: Path) -> Outcome:
    task = BodyTask(
        session="try",
        address="try",
        action=Action.AGENT,
        iteration=1,
        attempt=1,
        inputs={"task": prompt, "doer": {"agent": chosen.name}, "model": chosen.model},
        cwd=Path.cwd(),
        spill=spill,
        timeout_s=chosen.timeout,
        url="",
        mint=str,
        agents=book,
        default_agent=None,
        conversation=f"{chosen.name}|try",
    )
    return run_body(task, threading.Event())


def _tell(fields: dict[str, object]) -> int:
    sys.stdout.write(json.dumps(fields) + "\n")
    return 1 if "error" in fields else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
