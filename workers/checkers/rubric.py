"""Parses rubrics, Markdown files of gates and criteria, and computes their verdict (pure)."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from app.core.outcomes import Baseline, Gate, Outcome, Ruling, Verdict
from app.truncate import cut
from leadhand.errors import LeadhandError
from leadhand.models.documents import Checker
from leadhand.models.pipelines import hidden_exit_code
from leadhand.models.verdicts import ReasonCode
from workers.agents.ask import agent_named
from workers.checkers.baseline import (
    Found,
    KeptBases,
    baseline_of,
    compare,
    joined,
    missing_tests,
)
from workers.checkers.commands import CommandRun, run_command
from workers.checkers.verdicts import ask_verdict, is_unclear, not_started
from workers.processes.exit_outcome import (
    add_process_facts,
    describe_end,
    failed_outcome,
    why_not_started,
)
from workers.processes.process import ProcessResult
from workers.prompts import CheckInputs
from workers.task import UNCLEAR, BodyTask

#: Characters of a failed gate's output in the feedback.
GATE_LIMIT = 500
#: The output of a gate that took too long.
TIMED_OUT = "it timed out"
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
#: The largest rubric, in bytes.
_MOST = 256 * 1024
#: Characters of a gate's output that are stored.
_SAID = 2_000


class Rubric(NamedTuple):
    """Gates to run and criteria for an agent to judge by."""

    title: str
    #: Commands that must all end with exit code 0.
    gates: tuple[str, ...]
    #: For an agent to judge by.
    criteria: str
    #: For an agent to comment on; it never blocks.
    nice: str
    notes: str
    #: The version of the file: 8 hex characters of its SHA-256.
    hash: str

    @property
    def asks_an_agent(self) -> bool:
        """Whether the rubric has criteria that only an agent can judge."""
        return bool(self.criteria or self.nice)


class RubricUnclear(LeadhandError):
    """A part of a rubric belongs to no section; to ignore it could accept bad work."""

    def __init__(self, what: str, way_out: str, line: int | None = None) -> None:
        super().__init__(what, way_out, line)
        self.what = what
        self.way_out = way_out
        self.line = line

    def __str__(self) -> str:
        where = "it" if self.line is None else f"line {self.line}"
        return f"{where} {self.what}; {self.way_out}"


class Sentence(NamedTuple):
    """The verdict of a rubric, with feedback."""

    verdict: Verdict
    feedback: str


def parse_rubric(text: str) -> Rubric:
    r"""Parses a Markdown rubric to gates, criteria and notes by headings of any level and case.

    Raises RubricUnclear for a line that belongs to no section.

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
    texts = {name: "\n".join(lines).strip() for name, lines in sections.texts.items()}
    return Rubric(
        title=sections.title,
        gates=tuple(dict.fromkeys(sections.gates)),
        hash=hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8],
        **texts,
    )


class _Sections:
    """Collects the lines of each section."""

    def __init__(self) -> None:
        self.title = ""
        self.gates: list[str] = []
        # Lines before the first section describe the rubric.
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
            raise RubricUnclear(f"is not a gate, {cut(line.strip(), 80)!r}", way_out, number)
        self._explains = goes_on

    def _goes_on(self, line: str) -> bool:
        """Whether the line continues the description of the gate above it."""
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
    """Combines gates and criteria to a verdict: terminate wins, a failed gate means retry.

    Nice to have is part of the feedback and blocks nothing.
    """
    failed = [gate for gate in gates if not gate.passed]
    parts = [_feedback_of(gate) for gate in failed]
    if agent is not None and agent.feedback:
        parts.append(agent.feedback)
    feedback = "\n\n".join(parts)
    if agent is not None and agent.verdict == "terminate":
        return Sentence("terminate", feedback)
    unmet = bool(rubric.criteria) and (agent is None or agent.verdict != "accept")
    return Sentence("retry" if failed or unmet else "accept", feedback)


def _feedback_of(gate: Gate) -> str:
    """A failed gate for the doer; a timeout is not feedback on the work."""
    if gate.said == TIMED_OUT:
        return f"Gate `{gate.gate}` timed out: this is no verdict on the work."
    return f"Gate `{gate.gate}` failed: {cut(gate.said, GATE_LIMIT)}".rstrip()


def criteria_of(rubric: Rubric, gates: Sequence[Gate]) -> str:
    """Writes the criteria section of a checker agent's prompt, with the results of the gates."""
    went = "\n".join(f"- `{gate.gate}`: {'passed' if gate.passed else 'failed'}" for gate in gates)
    parts = (
        ("", rubric.title and f"{rubric.title}"),
        ("Must be met", rubric.criteria),
        ("Nice to have: speak of it, and never refuse the work for it", rubric.nice),
        ("Notes", rubric.notes),
        ("Commands that were run already", went),
    )
    return "\n\n".join(f"## {head}\n\n{text}" if head else text for head, text in parts if text)


def by_rubric(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    """Runs a check by a rubric file: all gate commands first, then an agent judges the criteria."""
    deadline = time.monotonic() + timeout_s
    try:
        rubric = _read((task.origin or task.folder) / name)
    except (OSError, ValueError, RubricUnclear) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return not_started(f"rubric {name!r} cannot be read: {why}")
    if given.gates_only:
        rubric = rubric._replace(criteria="", nice="")
    bases = given.base.gates if given.base is not None else {}
    runs = _run_gates(task, rubric, deadline, cancel, bases)
    if given.keeps:
        _keep_gates(KeptBases(task, task.recorded_work()), runs)
    gates = [_gate(line, ran) for line, ran in runs.items()]
    result = [*runs.values()][-1].result if runs else None
    if result is not None and result.cancelled:
        return failed_outcome(
            ReasonCode.CANCELLED, "the rubric's check was cancelled", result=result
        )
    asked = None
    if rubric.asks_an_agent:
        asked = _asked(task, given, rubric, gates, deadline, cancel)
        if asked.word == "failed":
            return asked
    outcome = compare(given.base, _outcome(rubric, gates, asked, result), None)
    # The file is not read at the submit, where other commands are looked at.
    hidden = [hidden_exit_code(line) for line in rubric.gates] if task.iteration == 1 else []
    gone = [missing_tests(bases.get(line), ran.tests) for line, ran in runs.items()]
    found = (outcome.warning, *(gone if outcome.verdict == "accept" else ()), *hidden)
    warnings = [text for text in found if text is not None]
    return outcome.model_copy(update={"warning": "; ".join(warnings) or None})


def _read(path: Path) -> Rubric:
    with path.open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise RubricUnclear(f"is longer than {_MOST} bytes", "cut it")
    return parse_rubric(data.decode(errors="replace"))


def find_by_rubric(
    task: BodyTask,
    checker: Checker,
    digest: str | None,
    *,
    timeout_s: float,
    cancel: threading.Event,
) -> Found:
    """Runs the gates of a rubric before the work, but not again in the same state.

    No agent is asked.
    """
    try:
        rubric = _read((task.origin or task.folder) / str(checker.rubric))
    except (OSError, ValueError, RubricUnclear):
        return Found(Baseline(), ": the rubric cannot be read", None)
    kept = KeptBases(task, digest)
    known = {line: kept.get(Checker(command=line)) for line in rubric.gates}
    left = rubric._replace(gates=tuple(line for line, base in known.items() if base is None))
    runs = _run_gates(task, left, time.monotonic() + timeout_s, cancel, {})
    _keep_gates(kept, runs)
    bases = {
        line: base or (baseline_of(runs[line]) if line in runs else Baseline())
        for line, base in known.items()
    }
    text = "\n".join(["", "", *(f"- `{line}`: {base.word}" for line, base in bases.items())])
    result = [*runs.values()][-1].result if runs else None
    return Found(joined(bases), text.rstrip(), result)


def _keep_gates(kept: KeptBases, runs: Mapping[str, CommandRun]) -> None:
    """Keep how the gates of a rubric ended in one state of the folder."""
    for line, ran in runs.items():
        kept.put(Checker(command=line), baseline_of(ran))


def _run_gates(
    task: BodyTask,
    rubric: Rubric,
    deadline: float,
    cancel: threading.Event,
    bases: Mapping[str, Baseline],
) -> dict[str, CommandRun]:
    """Runs every gate, also after one that failed."""
    runs: dict[str, CommandRun] = {}
    for line in rubric.gates:
        left_s = max(0.1, deadline - time.monotonic())
        gate = Checker(command=line)
        ran = run_command(task, gate, timeout_s=left_s, cancel=cancel, base=bases.get(line))
        runs[line] = ran
        if ran.result.cancelled:
            break
    return runs


def _gate(line: str, ran: CommandRun) -> Gate:
    result, counts = ran.result, None if ran.tests is None else ran.tests.counts
    if result.succeeded and not ran.refusal:
        return Gate(gate=line, passed=True, counts=counts)
    why = why_not_started(result) or ran.refusal
    output = why or (TIMED_OUT if result.timed_out else describe_end(result))
    return Gate(gate=line, passed=False, said=cut(output, _SAID), counts=counts)


def _asked(
    task: BodyTask,
    given: CheckInputs,
    rubric: Rubric,
    gates: list[Gate],
    deadline: float,
    cancel: threading.Event,
) -> Outcome:
    """Asks an agent to judge the criteria."""
    checker = given.checker
    name = agent_named(task, checker.agent, given.doer.agent if given.doer else None)
    prompted = checker.model_copy(update={"prompt": criteria_of(rubric, gates)})
    return ask_verdict(
        task,
        given.model_copy(update={"checker": prompted}),
        name,
        timeout_s=max(0.1, deadline - time.monotonic()),
        cancel=cancel,
    )


def _outcome(
    rubric: Rubric, gates: list[Gate], asked: Outcome | None, result: ProcessResult | None
) -> Outcome:
    by_agent = Sentence(asked.verdict or "retry", asked.text) if asked is not None else None
    verdict, feedback = sentence(rubric, gates, by_agent)
    lacks_a_word = asked is not None and is_unclear(asked) and verdict == "retry"
    changes = {
        "verdict": verdict,
        "text": feedback,
        "ruling": Ruling(rubric=rubric.hash, gates=tuple(gates)),
        "decided_by": UNCLEAR if lacks_a_word and all(one.passed for one in gates) else "rubric",
    }
    if asked is not None:
        return asked.model_copy(update=changes)
    outcome = Outcome.model_validate({"word": "succeeded", **changes})
    return (
        outcome
        if result is None
        else add_process_facts(outcome, result).model_copy(update={"exit_code": None})
    )
