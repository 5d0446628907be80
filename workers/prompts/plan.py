"""The prompt in which a team lead is asked for the tasks of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from app.truncate import cut

#: Characters of the analysis that the prompt quotes.
_ANALYSIS = 32_000

_ROLE = """You are a team lead. Divide the request into tasks that agents carry out, each in a
session of its own and each checked by itself. A task is small and complete in itself, and its text
says all that its agent needs to know. Name a dependency only where a task needs the result of
another; tasks without one run side by side. Change nothing in the folder."""

_FORMAT = """# Answer

Answer with JSON only, in this form:

{"tasks": [
  {"id": "parser", "title": "Parse the file",
   "description": "What to do, where, and when it is done."},
  {"id": "tests", "title": "Test the parser", "description": "...", "dependencies": ["parser"]}
]}

`id` has up to 40 lower-case letters, digits, '-' and '_'. Optional fields of a task: `dependencies`
(ids), `checkers` (names from the list below; without it, all of them), `file_scope` (a list of
paths), `priority` (0 is first, 9 is last)."""

_REPLAN_ROLE = """You are the team lead of this plan. A task has failed for good: find another way
to fulfil the request. Look at the folder if you need to; change nothing in it, and do none of the
work. Tasks that need the failed one wait for it: change or retry it, or let them need others."""

_REPLAN_FORMAT = """# Answer

Answer with JSON only: the changes of the plan, in their order, and why. Without another way, give
no operations.

{"why": "the parser needs the grammar first",
 "operations": [
  {"op": "add", "task": {"id": "grammar", "title": "Write the grammar", "description": "..."}},
  {"op": "change", "id": "parser", "description": "...", "dependencies": ["grammar"]},
  {"op": "retry", "id": "parser"},
  {"op": "drop", "id": "docs"}
]}

`retry` starts a failed task again. `change` takes the fields of a task: title, description,
dependencies (ids), checkers (names from the list below), file_scope, priority. Tasks at work and
completed ones cannot be changed or dropped."""


def draft_prompt(
    *,
    request: str,
    analysis: str,
    checkers: Sequence[str],
    current: list[JsonValue] | None,
    change: str,
) -> str:
    """Builds the prompt by which a team lead divides a request into tasks, or changes a draft."""
    sections = [
        _ROLE,
        f"# Request\n\n{request.strip()}",
        f"# Analysis\n\n{cut(analysis.strip(), _ANALYSIS)}" if analysis.strip() else "",
        f"# The plan so far\n\n{_as_json(current)}" if current else "",
        f"# What to change in it\n\n{change.strip()}" if change.strip() else "",
        _FORMAT,
        f"# Checkers\n\n{', '.join(checkers) or '(none)'}",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _as_json(tasks: list[JsonValue]) -> str:
    return json.dumps({"tasks": tasks}, indent=1)


def replan_prompt(
    *,
    request: str,
    failed: Mapping[str, JsonValue],
    current: list[JsonValue],
    checkers: Sequence[str],
) -> str:
    """Builds the prompt for an edit of the plan after a task failed for good."""
    sections = [
        _REPLAN_ROLE,
        f"# Request\n\n{request.strip()}",
        f"# The plan\n\n{_as_json(current)}",
        f"# What failed\n\nTask {failed['task']}, run {failed['run']}: {failed['reason']}",
        _REPLAN_FORMAT,
        f"# Checkers\n\n{', '.join(checkers) or '(none)'}",
    ]
    return "\n\n".join(sections) + "\n"
