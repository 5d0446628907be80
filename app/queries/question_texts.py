"""Formats questions to people as notes, with the command that answers each (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from app.domain.records import StepRecord
from app.truncate import cut

#: Maximum characters of a question in a note.
QUESTION = 500


def answer_command(session: str, address: str, *, is_plan: bool) -> str:
    """The command that answers a question; the only question of a plan is about its draft.

    >>> answer_command("1a2b3c4d", "ask~1[1]/q", is_plan=False)
    "leadhand answer 1a2b3c4d 'ask~1[1]/q' TEXT"
    >>> answer_command("1a2b3c4d", "drafting~1[1]/refine", is_plan=True)
    'leadhand plan approve 1a2b3c4d'
    """
    if is_plan:
        return f"leadhand plan approve {session}"
    return f"leadhand answer {session} {shlex.quote(address)} TEXT"


def question_notes(session: str, records: Mapping[str, StepRecord], *, is_plan: bool) -> list[str]:
    """A note for each parked step that asks a person."""
    how = f"leadhand plan show {session}" if is_plan else f"leadhand answer {session} TEXT"
    return [
        f"{address} asks: {cut(str(record.parked.get('question') or ''), QUESTION)}"
        f"; answer with: {how}"
        for address, record in sorted(records.items())
        if record.parked is not None and record.parked.get("on") == "human"
    ]
