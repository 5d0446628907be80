"""Formats the steps of a flow or workflow as a tree of loops, iterations and steps (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leadhand.cli.render.live_text import elapsed
from leadhand.cli.render.progress import step_name
from leadhand.models.text import plain
from leadhand.models.views import LedgerEntry, NodeProgress, SessionView, StepView

#: Iterations of one loop whose steps are listed, and that are listed at all: the newest.
_OPEN_ITERATIONS, _MOST_ITERATIONS = 3, 20
#: Items of one for_each that are listed.
_MOST_ITEMS = 20
#: Characters of a name with its indentation, and of a summary.
_NAME, _SUMMARY = 28, 200
#: Steps that combine the verdicts of others.
_SILENT = frozenset({"judge"})
_WORDS = {"ready": "waiting", "parked": "waiting", "open": "running"}
_NEVER = datetime.max.replace(tzinfo=UTC)
_PART = re.compile(r"^(?P<node>[^~\[#]+)(?:~(?P<run>\d+))?(?:\[(?P<iteration>\d+)\])?")


@dataclass
class _Row:
    """A node of the tree: a loop, an iteration, or a step."""

    name: str
    state: str = ""
    summary: str = ""
    cost_usd: float = 0.0
    started: datetime | None = None
    ended: datetime | None = None
    #: Rows beneath it, in the order of their first step.
    rows: dict[str, _Row] = field(default_factory=dict)
    #: Whether the session's progress has its state.
    is_outermost: bool = False
    #: Of an iteration: the newest runs, of its loop and of those around, that have come to it.
    runs: tuple[int, ...] = ()

    def add(self, step: StepView, now: datetime) -> None:
        """Count a step beneath this row."""
        self.cost_usd += step.cost_usd
        start, end = _time(step.started_at), _time(step.ended_at)
        if start is not None:
            self.started = min(self.started or start, start)
            latest = end or (now if step.state == "running" else start)
            self.ended = max(self.ended or latest, latest)

    def add_beneath(self, step: StepView, now: datetime) -> None:
        """Count a step beneath this loop or iteration, which runs if the step does."""
        self.add(step, now)
        if step.state in ("ready", "running", "parked"):
            self.state = "running" if step.state == "running" else self.state or "waiting"


def step_lines(
    view: SessionView,
    steps: Iterable[StepView],
    ledger: Iterable[LedgerEntry],
    *,
    now: datetime | None = None,
) -> Iterator[str]:
    """Formats one line per phase, step, loop and iteration: state, time, cost and outcome.

    Of a long loop only the newest iterations are listed.
    """
    now = now or datetime.now(UTC)
    entries = {entry.address: entry for entry in ledger if entry.address is not None}
    root = _Row("", rows={node.node: _outermost(node) for node in view.progress.nodes})
    labels = {node.node: node.label for node in view.progress.nodes if node.label}
    for step in steps:
        _place(root, step, labels, entries, now)
    rows = list(_lines(root, depth=1))
    if rows:
        yield "steps"
    cells = [_cells(depth, row) for depth, row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for (_, row), (name, state, took, cost) in zip(rows, cells, strict=True):
        columns = [name.ljust(widths[0]), state.ljust(widths[1]), took.rjust(widths[2])]
        columns += [cost.rjust(widths[3])] if widths[3] else []
        yield "  ".join([*columns, row.summary]).rstrip()


def step_seconds(step: StepView) -> float | None:
    """Returns how long the last attempt ran, in seconds; None if it did not end."""
    start, end = _time(step.started_at), _time(step.ended_at)
    return None if start is None or end is None else (end - start).total_seconds()


def _outermost(node: NodeProgress) -> _Row:
    """The row of a phase or of a flow's outermost step, which may not have started yet."""
    name = plain(node.label or node.node, most=60)
    row = _Row(name, state=node.verdict or _WORDS.get(node.state, node.state))
    row.is_outermost = True
    if node.max_iterations and node.iteration:
        row.summary = f"iteration {node.iteration} of {node.max_iterations}"
        row.summary += f", run {node.run}" if node.run > 1 else ""
    return row


def _place(
    root: _Row,
    step: StepView,
    labels: Mapping[str, str],
    entries: Mapping[str, LedgerEntry],
    now: datetime,
) -> None:
    """Put a step beneath its loops and iterations."""
    *around, last = step.address.split("/")
    row, path, address = root, "", ""
    runs: tuple[int, ...] = ()
    row.add(step, now)
    for part in around:
        node, run, iteration = _parse(part)
        runs += (run,)
        path, address = (f"{path}/{node}", f"{address}/{part}") if path else (node, part)
        row = _loop(row, node, run, labels.get(path, node), is_outermost=path == node)
        row.add_beneath(step, now)
        if iteration:
            row = _iteration(row, iteration, runs, entries.get(address))
            row.add_beneath(step, now)
    if _parse(last)[0] not in _SILENT:
        _leaf(row, last, step, now)


def _loop(row: _Row, node: str, run: int, label: str, *, is_outermost: bool) -> _Row:
    name = plain(label, most=60) + (f" (run {run})" if run > 1 and not is_outermost else "")
    key = node if is_outermost else f"{node}~{run}"
    return row.rows.setdefault(key, _Row(name))


def _iteration(
    loop: _Row, iteration: int, runs: tuple[int, ...], entry: LedgerEntry | None
) -> _Row:
    """The row of an iteration, with the verdict of the newest run that has come to it."""
    row = loop.rows.setdefault(f"[{iteration}]", _Row(f"iteration {iteration}"))
    if runs <= row.runs:
        return row
    row.runs = runs
    row.state = entry.verdict if entry is not None else ""
    row.summary = _first_line(entry.feedback or entry.work) if entry is not None else ""
    # After the last iteration of a loop that reached its limit, "retry" is no result.
    if entry is not None and not loop.is_outermost:
        loop.state = "" if entry.verdict == "retry" else entry.verdict
    return row


def _leaf(row: _Row, last: str, step: StepView, now: datetime) -> None:
    """Add the row of a step, or replace that of its earlier run."""
    head, _, item = last.partition("#")
    node = head.partition("~")[0]
    known = row.rows.get(node)
    name = known.name if known is not None else plain(_name(node, step), most=60)
    leaf = _Row(name, state=step.verdict or _WORDS.get(step.state, step.state))
    leaf.summary = plain(step.summary, most=_SUMMARY)
    if step.answered_by is not None:
        leaf.summary = f"{leaf.summary} (by {plain(step.answered_by)})".lstrip()
    if step.attempt > 1:
        leaf.summary = f"attempt {step.attempt}  {leaf.summary}".rstrip()
    leaf.add(step, now)
    if not item:
        row.rows[node] = leaf
        return
    leaf.name = f"{name} {item}"
    every = row.rows.setdefault(node, _Row(name))
    every.rows[last] = leaf
    every.add(step, now)
    every.state = _worst(every.rows.values())


def _name(node: str, step: StepView) -> str:
    return step.label if step.label and step.label != node else step_name(node)


def _worst(rows: Iterable[_Row]) -> str:
    """The state of a for_each, by the states of its items."""
    states = [row.state for row in rows]
    for state in ("running", "waiting", "failed", "retry"):
        if state in states:
            return state
    return states[-1]


def _lines(row: _Row, *, depth: int) -> Iterator[tuple[int, _Row]]:
    rows = list(row.rows.items())
    if depth > 1:  # addresses are sorted by name; the outermost nodes have the order of the program
        rows.sort(key=lambda item: (item[1].started is None, item[1].started or _NEVER))
    iterations = [key for key in row.rows if key.startswith("[")]
    hidden, opened = set(iterations[:-_MOST_ITERATIONS]), set(iterations[-_OPEN_ITERATIONS:])
    items = [key for key, one in rows if "#" in key and one.state not in ("failed", "running")]
    hidden |= set(items[:-_MOST_ITEMS])
    if hidden:
        yield depth, _Row(f"... {len(hidden)} earlier")
    for key, one in rows:
        if key in hidden:
            continue
        yield depth, one
        if not key.startswith("[") or key in opened:
            yield from _lines(one, depth=depth + 1)


def _cells(depth: int, row: _Row) -> tuple[str, str, str, str]:
    """The name with its indentation, the state, the elapsed time and the cost."""
    name = "  " * depth + row.name
    name = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
    took = ""
    if row.started is not None and row.ended is not None:
        took = elapsed(round((row.ended - row.started).total_seconds() * 1000))
    return name, row.state, took, f"${row.cost_usd:.4f}" if row.cost_usd else ""


def _parse(part: str) -> tuple[str, int, int]:
    """The node, run and iteration of one part of an address.

    >>> _parse("inner~2[3]"), _parse("fetch~1#17")
    (('inner', 2, 3), ('fetch', 1, 0))
    """
    match = _PART.match(part)
    if match is None:
        return part, 1, 0
    return match["node"], int(match["run"] or 1), int(match["iteration"] or 0)


def _first_line(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    return plain(first, most=_SUMMARY)


def _time(at: str | None) -> datetime | None:
    return None if at is None else datetime.fromisoformat(at)
