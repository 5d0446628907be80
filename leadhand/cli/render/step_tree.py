"""Formats the steps of a flow, graph or workflow as a tree: each run, iteration and step (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leadhand.cli.render.live_text import elapsed
from leadhand.cli.render.progress import step_name
from leadhand.models.text import plain, reason_text
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.session import NodeProgress, SessionView
from leadhand.models.views.step import StepView, TurnView

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
    """A node of the tree: one run of a loop, list or step, or an iteration or item of it."""

    name: str
    state: str = ""
    summary: str = ""
    #: Of a run: its node, and its number.
    node: str = ""
    run: int = 1
    #: Whether more than one run of its node is listed.
    is_one_of_several: bool = False
    cost_usd: float = 0.0
    started: datetime | None = None
    ended: datetime | None = None
    #: When the first of what is beneath it began, or was skipped: rows are sorted by it.
    began: datetime | None = None
    rows: dict[str, _Row] = field(default_factory=dict)

    def beneath(self, node: str, run: int, name: str) -> _Row:
        """Return the row of a run beneath this row, which is added if it is new."""
        new = _Row(plain(name, most=60), node=node, run=run)
        return self.rows.setdefault(f"{node}~{run}", new)

    def add(self, step: StepView, now: datetime) -> None:
        """Count a step beneath this row."""
        self.cost_usd += step.cost_usd
        start, end = _time(step.started_at), _time(step.ended_at)
        self.begin(start or end)
        if start is not None:
            self.started = min(self.started or start, start)
            latest = end or (now if step.state == "running" else start)
            self.ended = max(self.ended or latest, latest)

    def add_beneath(self, step: StepView, now: datetime) -> None:
        """Count a step beneath this loop or iteration, which runs if the step does."""
        self.add(step, now)
        if step.state in ("ready", "running", "parked"):
            self.state = "running" if step.state == "running" else self.state or "waiting"

    def begin(self, at: datetime | None) -> None:
        """Note that something beneath this row began."""
        if at is not None:
            self.began = min(self.began or at, at)


def step_lines(
    view: SessionView,
    steps: Iterable[StepView],
    ledger: Iterable[LedgerEntry],
    turns: Sequence[TurnView] = (),
    *,
    now: datetime | None = None,
) -> Iterator[str]:
    """Formats one line per run of a phase, loop or step, and per iteration: state, time, outcome.

    Of a long loop only the newest iterations are listed.
    """
    entries = {entry.address: entry for entry in ledger if entry.address is not None}
    labels = {turn.node: turn.label for turn in turns}
    labels |= {node.node: node.label for node in view.progress.nodes if node.label}
    tree = _Tree(labels, entries, now or datetime.now(UTC))
    for step in steps:
        tree.place_step(step)
    for turn in turns:
        tree.place_turn(turn)
    for node in view.progress.nodes:
        tree.place_outermost(node)
    order = {node.node: number for number, node in enumerate(view.progress.nodes)}
    rows = list(_lines(tree.root, depth=1, order=order))
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


class _Tree:
    """The rows of a session, each run beneath the iteration in which it began."""

    def __init__(
        self, labels: Mapping[str, str], entries: Mapping[str, LedgerEntry], now: datetime
    ) -> None:
        self.root = _Row("")
        self._labels = labels
        self._entries = entries
        self._now = now

    def place_step(self, step: StepView) -> None:
        """Put a step beneath its loops and iterations."""
        *around, last = step.address.split("/")
        rows = self._rows_of(around)
        for row in rows:
            row.add_beneath(step, self._now)
        row = rows[-1] if rows else self.root
        node, run, _ = _parse(last)
        if node in _SILENT:
            return
        label = self._labels.get(node, node) if row is self.root else _name(node, step)
        row = row.beneath(node, run, label)
        _, _, item = last.partition("#")
        if not item:
            self._fill(row, step)
            return
        row.add(step, self._now)
        self._fill(row.rows.setdefault(f"#{item}", _Row(f"{row.name} {item}")), step)
        row.state = _worst(row.rows.values())

    def _fill(self, leaf: _Row, step: StepView) -> None:
        """Write what came of a step into its row."""
        leaf.add(step, self._now)
        leaf.state = step.verdict or _WORDS.get(step.state, step.state)
        leaf.summary = plain(step.summary, most=_SUMMARY)
        if step.answered_by is not None:
            leaf.summary = f"{leaf.summary} (by {plain(step.answered_by)})".lstrip()
        if step.attempt > 1:
            leaf.summary = f"attempt {step.attempt}  {leaf.summary}".rstrip()

    def place_turn(self, turn: TurnView) -> None:
        """Write how a run of a loop or list ended into its row, which may have no steps."""
        row = self._rows_of(turn.address.split("/"))[-1]
        row.begin(_time(turn.started_at))
        if turn.items is not None:
            row.state = _state_of_list(turn, row)
        elif turn.state == "closed":
            row.state = turn.verdict or turn.state
        else:
            row.state = row.state or "running"
        if turn.verdict == "skipped" and turn.reason is not None:
            row.summary = plain(reason_text(turn.reason.model_dump()), most=_SUMMARY)
        elif turn.iteration and "/" not in turn.address:
            row.summary = f"iteration {turn.iteration} of {turn.max_iterations}"
        if turn.continues is not None:
            what = f"continues {turn.continues} from iteration {turn.from_iteration} on"
            row.summary = f"{row.summary}, {what}" if row.summary else what

    def place_outermost(self, node: NodeProgress) -> None:
        """Add a phase or outermost step that has not started."""
        is_new = f"{node.node}~{node.run}" not in self.root.rows
        row = self.root.beneath(node.node, node.run, node.label or node.node)
        if is_new:
            row.state = node.verdict or _WORDS.get(node.state, node.state)

    def _rows_of(self, parts: Iterable[str]) -> list[_Row]:
        """The rows of loops, each followed by that of the iteration that the address names."""
        rows = list[_Row]()
        row, path, address = self.root, "", ""
        for part in parts:
            node, run, iteration = _parse(part)
            path, address = (f"{path}/{node}", f"{address}/{part}") if path else (node, part)
            row = row.beneath(node, run, self._labels.get(path, node))
            rows.append(row)
            if iteration:
                row = self._iteration(row, iteration, self._entries.get(address))
                rows.append(row)
        return rows

    def _iteration(self, loop: _Row, iteration: int, entry: LedgerEntry | None) -> _Row:
        """The row of an iteration, with its verdict."""
        known = loop.rows.get(f"[{iteration}]")
        if known is not None:
            return known
        row = loop.rows[f"[{iteration}]"] = _Row(f"iteration {iteration}")
        if entry is not None:
            row.state, row.summary = entry.verdict, _first_line(entry.feedback or entry.work)
            # After the last iteration of a loop at its limit, "retry" is no result.
            loop.state = "" if entry.verdict == "retry" else entry.verdict
        return row


def _name(node: str, step: StepView) -> str:
    return step.label if step.label and step.label != node else step_name(node)


def _state_of_list(turn: TurnView, row: _Row) -> str:
    """The state of a for_each: its own if it was skipped or empty, else by those of its items."""
    worst = _worst(row.rows.values()) if row.rows else ""
    if turn.state != "closed":
        return worst if worst in ("running", "waiting") else "running"
    if worst and (turn.verdict == "accept" or worst in ("failed", "retry")):
        return worst
    return "succeeded" if turn.verdict == "accept" else turn.verdict or turn.state


def _worst(rows: Iterable[_Row]) -> str:
    """The state of a for_each, by the states of its items."""
    states = [row.state for row in rows]
    for state in ("running", "waiting", "failed", "retry"):
        if state in states:
            return state
    return states[-1]


def _lines(
    row: _Row, *, depth: int, order: Mapping[str, int] | None = None
) -> Iterator[tuple[int, _Row]]:
    """Each row beneath a row with its depth; `order` has the places of the outermost nodes."""
    rows = list(row.rows.items())
    if order is not None:
        rows.sort(key=lambda item: (order.get(item[1].node, len(order)), item[1].run))
    elif any(one.node for _, one in rows):
        rows.sort(key=lambda item: item[1].began or _NEVER)
    several = Counter(one.node for _, one in rows)
    iterations = [key for key in row.rows if key.startswith("[")]
    hidden, opened = set(iterations[:-_MOST_ITERATIONS]), set(iterations[-_OPEN_ITERATIONS:])
    items = [key for key, one in rows if "#" in key and one.state not in ("failed", "running")]
    hidden |= set(items[:-_MOST_ITEMS])
    if hidden:
        yield depth, _Row(f"... {len(hidden)} earlier")
    for key, one in rows:
        if key in hidden:
            continue
        one.is_one_of_several = one.run > 1 or (bool(one.node) and several[one.node] > 1)
        yield depth, one
        if not key.startswith("[") or key in opened:
            yield from _lines(one, depth=depth + 1)


def _cells(depth: int, row: _Row) -> tuple[str, str, str, str]:
    """The name with its indentation, the state, the elapsed time and the cost."""
    name, run = "  " * depth + row.name, f" (run {row.run})" if row.is_one_of_several else ""
    most = _NAME - len(run)
    name = (name if len(name) <= most else name[: most - 1] + "…") + run
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
