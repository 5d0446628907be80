"""Pure: a rubric, a Markdown file of gates, criteria and what would be nice, and its verdict."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from app.outcomes import Gate, Verdict
from app.texts import cut

#: Characters of what one failed gate said that the doer is shown.
GATE_LIMIT = 500
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_GATE = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_SECTIONS = {
    "gates": "gates", "gate": "gates", "criteria": "criteria", "nice to have": "nice",
    "nice-to-have": "nice", "notes": "notes",
}  # fmt: skip


class Rubric(NamedTuple):
    """What work is judged by."""

    title: str
    #: Commands that must all end with exit code 0.
    gates: tuple[str, ...]
    #: For an agent to judge by.
    criteria: str
    #: For an agent to speak of; it never blocks.
    nice: str
    notes: str
    #: 8 hex characters of the file's SHA-256: which version judged.
    hash: str

    @property
    def asks_an_agent(self) -> bool:
        return bool(self.criteria or self.nice)


class Sentence(NamedTuple):
    """What a rubric comes to."""

    verdict: Verdict
    feedback: str


def parse_rubric(text: str) -> Rubric:
    r"""The sections of a rubric, by headings of any level, large or small letters.

    >>> rubric = parse_rubric("# Slugs\n## Gates\n- `make` must pass\n## Criteria\nNo hacks.")
    >>> rubric.title, rubric.gates, rubric.criteria, len(rubric.hash)
    ('Slugs', ('make',), 'No hacks.', 8)
    """
    title, section = "", ""
    lines: dict[str, list[str]] = {"gates": [], "criteria": [], "nice": [], "notes": [], "": []}
    for line in text.splitlines():
        heading = _HEADING.match(line)
        known = _SECTIONS.get(heading.group(2).strip().rstrip(":").lower()) if heading else None
        if known is not None:
            section = known
        elif heading is not None and not title and not section:
            title = heading.group(2)
        else:
            lines[section].append(line)
    matches = (_GATE.match(line) for line in lines["gates"])
    return Rubric(
        title=title,
        gates=tuple(dict.fromkeys(match.group(2).strip() for match in matches if match)),
        criteria="\n".join(lines["criteria"]).strip(),
        nice="\n".join(lines["nice"]).strip(),
        notes="\n".join(lines["notes"]).strip(),
        hash=hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8],
    )


def sentence(rubric: Rubric, gates: Sequence[Gate], agent: Sentence | None) -> Sentence:
    """Terminate wins; then a failed gate asks for a retry; then the criteria decide.

    What would be nice is told, and blocks nothing.
    """
    failed = [gate for gate in gates if not gate.passed]
    told = [f"Gate `{gate.gate}` failed: {cut(gate.said, GATE_LIMIT)}".rstrip() for gate in failed]
    if agent is not None and agent.feedback:
        told.append(agent.feedback)
    feedback = "\n\n".join(told)
    if agent is not None and agent.verdict == "terminate":
        return Sentence("terminate", feedback)
    unmet = bool(rubric.criteria) and (agent is None or agent.verdict != "accept")
    return Sentence("retry" if failed or unmet else "accept", feedback)


def criteria_of(rubric: Rubric, gates: Sequence[Gate]) -> str:
    """What an agent is told to judge by, with how the gates went."""
    went = "\n".join(f"- `{gate.gate}`: {'passed' if gate.passed else 'failed'}" for gate in gates)
    parts = (
        ("", rubric.title and f"{rubric.title}"),
        ("Must be met", rubric.criteria),
        ("Nice to have: speak of it, and never refuse the work for it", rubric.nice),
        ("Notes", rubric.notes),
        ("Commands that were run already", went),
    )
    return "\n\n".join(f"## {head}\n\n{text}" if head else text for head, text in parts if text)
