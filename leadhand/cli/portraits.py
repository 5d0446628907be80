"""A session and its iterations, as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leadhand.cli.budgets import used_lines
from leadhand.cli.lines import elapsed
from leadhand.cli.picture import loop_name
from leadhand.cli.tables import plural
from leadhand.text import block, plain, reason_text
from leadhand.views import LedgerEntry, SessionView

_MOST_LINES = 12


def portrait(
    view: SessionView, ledger: Iterable[LedgerEntry], children: Iterable[SessionView] = ()
) -> Iterator[str]:
    """Lines on what a session is, what it started, and what each iteration brought."""
    yield from _head(view)
    for child in children:
        name = plain(child.label or child.name)
        yield f"started  {child.id}  {child.kind}  {name}  {child.status}"
    labels = {node.node: node.label for node in view.progress.nodes if node.label}
    for entry in ledger:
        yield ""
        yield from _iteration(entry, name=plain(loop_name(entry.loop, labels)))
    if view.progress.running:
        yield ""
    for step in view.progress.running:
        again = f", attempt {step.attempt}" if step.attempt > 1 else ""
        yield f"running: {plain(step.address)} since {step.since}{again}"


def _head(view: SessionView) -> Iterator[str]:
    yield f"session  {view.id}  {view.kind}  {plain(view.label or view.name)}"
    yield f"status   {view.status}"
    if view.reason is not None:
        yield f"reason   {reason_text(view.reason.model_dump())}"
    if view.cwd is not None:
        yield f"folder   {plain(view.cwd, most=400)}"
    yield f"created  {view.created_at}"
    if view.ended_at is not None:
        yield f"ended    {view.ended_at}"
    counted = view.counters
    yield (
        f"counted  {plural(counted.steps, 'step')}, {plural(counted.iterations, 'iteration')},"
        f" attempts lost {counted.attempts_lost}, attempts failed {counted.attempts_failed},"
        f" phase retries {counted.phase_retries}, stops {counted.stops}"
    )
    yield from used_lines(view)
    for node in view.progress.nodes:
        if node.attempts_failed or node.attempts_lost or node.run > 1 or node.stops:
            yield (
                f"  {plain(node.label)}: run {node.run}, attempts lost {node.attempts_lost},"
                f" failed {node.attempts_failed}, stops {node.stops}"
            )
    for warning in view.warnings:
        yield f"warning  {plain(warning, most=400)}"
    for note in view.notes:
        yield f"note     {plain(note, most=400)}"


def _iteration(entry: LedgerEntry, *, name: str) -> Iterator[str]:
    run = f", run {entry.run}" if entry.run > 1 else ""
    yield f"{name}{run}, iteration {entry.iteration}: {entry.verdict}{_cost(entry)}"
    if entry.work:  # nobody in particular works in a loop of a flow
        yield "  doer"
    yield from _some(entry.work)
    for check in entry.checks:
        yield f"  {plain(check.get('name'))}: {plain(check.get('verdict'))}{_took(check)}"
        yield from _some(str(check.get("feedback") or ""))
    if entry.reason is not None and entry.verdict != "accept":
        yield f"  why: {reason_text(entry.reason.model_dump())}"


def _cost(entry: LedgerEntry) -> str:
    tokens = entry.input_tokens + entry.output_tokens
    told = [] if entry.cost_usd is None else [f"${entry.cost_usd:.4f}"]
    told += [plural(tokens, "token")] if tokens else []
    return f" ({', '.join(told)})" if told else ""


def _took(check: Mapping[str, object]) -> str:
    started, ended = check.get("started_ms"), check.get("ended_ms")
    if not isinstance(started, int) or not isinstance(ended, int):
        return ""
    return f" ({elapsed(ended - started)})"


def _some(text: str) -> Iterator[str]:
    """The end of a text: there the verdicts and the errors are."""
    lines = list(block(text, indent="    "))
    if len(lines) > _MOST_LINES:
        yield f"    ... {plural(len(lines) - _MOST_LINES, 'line')} before; see --json"
    yield from lines[-_MOST_LINES:]
