"""Formats questions to people as notes, with the command that answers each (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from app.domain.records import StepRecord
from app.truncate import cut
from leadhand.models.forms import AnswerRules, default_of, leaves, parse_rules

#: Maximum characters of a question in a note.
QUESTION = 500


def answer_command(session: str, address: str, rules: AnswerRules, *, is_plan: bool) -> str:
    """Returns the shell command that answers a question, or that approves a plan's draft.

    >>> answer_command("1a2b3c4d", "ask~1[1]/q", AnswerRules(), is_plan=False)
    "leadhand answer 1a2b3c4d 'ask~1[1]/q' TEXT"
    >>> answer_command("1a2b3c4d", "q", AnswerRules(choices=("a", "b")), is_plan=False)
    'leadhand answer 1a2b3c4d q --choice CHOICE'
    >>> answer_command("1a2b3c4d", "drafting~1[1]/refine", AnswerRules(), is_plan=True)
    'leadhand plan approve 1a2b3c4d'
    """
    if is_plan:
        return f"leadhand plan approve {session}"
    return f"leadhand answer {session} {shlex.quote(address)} {_arguments(rules)}"


def _arguments(rules: AnswerRules) -> str:
    parts = ["--choice CHOICE"] if rules.choices else []
    if rules.form is not None:
        required = [path for path, is_required, field in leaves(rules.form)
                    if is_required and default_of(field) is None]  # fmt: skip
        parts += [f"--field {path}=VALUE" for path in required] or ["--field NAME=VALUE"]
    return " ".join(parts) or "TEXT"


def question_notes(session: str, records: Mapping[str, StepRecord], *, is_plan: bool) -> list[str]:
    """Returns a note for each parked step that asks a person, with the command that answers it."""
    return [
        f"{address} asks: {cut(str(record.parked.get('question') or ''), QUESTION)}"
        f"; answer with: {_short_command(session, record, is_plan=is_plan)}"
        for address, record in sorted(records.items())
        if record.parked is not None and record.parked.get("on") == "human"
    ]


def _short_command(session: str, record: StepRecord, *, is_plan: bool) -> str:
    """The command that answers a session's only question."""
    if is_plan:
        return f"leadhand plan show {session}"
    return (
        f"leadhand answer {session} {_arguments(parse_rules((record.parked or {}).get('rules')))}"
    )
