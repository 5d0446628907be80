"""Pure: a rubric, a Markdown file of gates, criteria and what would be nice, and its verdict."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from app.errors import LeadhandError
from app.outcomes import Gate, Verdict
from app.texts import cut

#: Characters of what one failed gate said that the doer is shown.
GATE_LIMIT = 500
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"^ {0,3}(```(?=`*[^`]*$)|~~~)")
_RULE = re.compile(r"^ {0,3}([-*_])(\s*\1){2,}\s*$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s")
_GATE = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_SECTIONS = {
    "gates": "gates", "gate": "gates", "hard gates": "gates", "criteria": "criteria",
    "acceptance criteria": "criteria", "nice to have": "nice", "nice-to-have": "nice",
    "notes": "notes",
}  # fmt: skip
_KNOWN = "## Gates, ## Criteria, ## Nice to Have, ## Notes"


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


class RubricUnclear(LeadhandError):
    """A part of a rubric is of no section: passed over, work could be accepted that it refuses."""

    def __init__(self, what: str, way_out: str, line: int | None = None) -> None:
        super().__init__(what, way_out, line)
        self.what = what
        self.way_out = way_out
        self.line = line

    def __str__(self) -> str:
        where = "it" if self.line is None else f"line {self.line}"
        return f"{where} {self.what}; {self.way_out}"


class Sentence(NamedTuple):
    """What a rubric comes to."""

    verdict: Verdict
    feedback: str


def parse_rubric(text: str) -> Rubric:
    r"""The sections of a rubric, by headings of any level, large or small letters.

    Raises RubricUnclear where something would be passed over.

    >>> rubric = parse_rubric("# Slugs\n## Gates\n- `make` must pass\n## Criteria\nNo hacks.")
    >>> rubric.title, rubric.gates, rubric.criteria, len(rubric.hash)
    ('Slugs', ('make',), 'No hacks.', 8)
    """
    sections = _Sections()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        sections.take(number, line)
    if sections.fence:
        raise RubricUnclear("opens a fence and nothing closes it", "close it", sections.fenced_at)
    if text.strip() and not sections.begun:
        raise RubricUnclear("has no section", f"write the headings that it needs: {_KNOWN}")
    said = {name: "\n".join(lines).strip() for name, lines in sections.texts.items()}
    return Rubric(
        title=sections.title,
        gates=tuple(dict.fromkeys(sections.gates)),
        hash=hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8],
        **said,
    )


class _Sections:
    """Takes line by line what stands in which section."""

    def __init__(self) -> None:
        self.title = ""
        self.gates: list[str] = []
        # What stands before the first section says what the rubric is about.
        self.texts: dict[str, list[str]] = {"criteria": [], "nice": [], "notes": []}
        self.begun = ""
        self._level = 6
        self.fence = ""
        self.fenced_at = 0
        self._explains = False

    def take(self, number: int, line: str) -> None:
        heading = None if self.fence else _HEADING.match(line)
        name = heading.group(2) if heading else ""
        if heading is not None and _section(name) is not None:
            self.begun, self._level = _section(name) or "", len(heading.group(1))
        elif heading is not None and not self.title and not self.begun:
            self.title = name
        elif heading is not None and (self.begun == "gates" or len(heading[1]) <= self._level):
            what = f"is a heading of no section, {cut(line.strip(), 80)!r}"
            raise RubricUnclear(what, f"give it a name that is known: {_KNOWN}", number)
        elif not self.fence and _section(line.strip(" \t#*_")) is not None:
            what = f"reads like a heading, {line.strip()!r}, and is none"
            raise RubricUnclear(what, f"write it as these are: {_KNOWN}", number)
        elif self.begun == "gates":
            self._take_gate(number, line)
        else:
            self._take_text(number, line)

    def _take_gate(self, number: int, line: str) -> None:
        gate = _GATE.match(line)
        if gate is not None:
            self.gates.append(gate.group(2).strip())
        goes_on = gate is not None or self._goes_on(line)
        if line.strip() and not _RULE.match(line) and not goes_on:
            way_out = "write each gate as a list item that begins with its command: - `make test`"
            raise RubricUnclear(f"is no gate, {cut(line.strip(), 80)!r}", way_out, number)
        self._explains = goes_on

    def _goes_on(self, line: str) -> bool:
        """Whether it is more of what the item above says of its command."""
        return self._explains and line.startswith((" ", "\t")) and not _ITEM.match(line)

    def _take_text(self, number: int, line: str) -> None:
        fence = _FENCE.match(line)
        if fence is not None:
            self.fenced_at = self.fenced_at if self.fence else number
            self.fence = {"": fence.group(1), fence.group(1): ""}.get(self.fence, self.fence)
        self.texts[self.begun or "notes"].append(line)


def _section(name: str) -> str | None:
    return _SECTIONS.get(name.strip().strip("*_").rstrip(":").lower())


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
