"""Formats a session, its iterations, reasons, times and phases as text (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from leadhand.cli.options import usage_lines
from leadhand.cli.render.live_text import elapsed
from leadhand.cli.render.progress import loop_name
from leadhand.cli.render.result_text import work_lines
from leadhand.cli.render.step_tree import step_lines
from leadhand.cli.render.tables import plural
from leadhand.cli.render.times import local_time, with_local_times
from leadhand.models.text import block, plain, reason_text
from leadhand.models.verdicts import counts_text
from leadhand.models.views.plan import OwnFolderView
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.session import MadeFrom, RoleView, SessionView
from leadhand.models.views.step import StepView, TurnView

_MOST_LINES = 12


def reason_line(view: SessionView) -> str:
    """Formats why a session ended without acceptance; "" if it has not, or was accepted.

    The reason of a workflow names the phase in which it ended.
    """
    if view.reason is None or view.status == "completed":
        return ""
    phase = _phase(view)
    where = f"phase {plain(phase)!r}: " if phase else ""
    return f"{where}{reason_text(view.reason.model_dump())}"


def _phase(view: SessionView) -> str:
    """The label of the outermost node that the reason is about."""
    if view.kind != "workflow" or view.reason is None:
        return ""
    at = next((link.at for link in view.reason.chain() if link.at), "")
    node = at.partition("/")[0].partition("[")[0].partition("~")[0]
    return next((one.label or one.node for one in view.progress.nodes if one.node == node), "")


def session_lines(
    view: SessionView,
    ledger: Sequence[LedgerEntry],
    children: Iterable[SessionView] = (),
    steps: Sequence[StepView] = (),
    turns: Sequence[TurnView] = (),
) -> Iterator[str]:
    """Formats a session: its facts, children, steps, iterations and running steps."""
    copied = _copied(view, ledger)
    yield from _head(view, copied)
    for child in children:
        name = plain(child.title, most=60)
        yield f"started  {child.id}  {child.kind}  {name}  {child.status}"
    if steps:
        yield ""
        yield from step_lines(view, steps, ledger, turns)
    labels = {node.node: node.label for node in view.progress.nodes if node.label}
    for number, entry in enumerate(ledger):
        yield ""
        name = plain(loop_name(_around(entry), labels))
        yield from _iteration(entry, name=name, copied=number < copied)
    if view.progress.running:
        yield ""
    for step in view.progress.running:
        again = f", attempt {step.attempt}" if step.attempt > 1 else ""
        since = "" if step.since is None else f" since {local_time(step.since)}"
        yield f"running: {plain(step.address)}{since}{again}"


def _copied(view: SessionView, ledger: Sequence[LedgerEntry]) -> int:
    """How many of the first entries a fork has copied; it counts its own iterations only."""
    is_fork = view.made_from is not None and view.made_from.verb == "fork"
    return max(0, len(ledger) - view.counters.iterations) if is_fork else 0


def head_line(view: SessionView) -> str:
    """Formats the line above a session's events: its id, its title and its task."""
    about = f" ({plain(view.task)})" if view.label and view.task else ""
    return f"session {view.id}: {plain(view.title)}{about}"


def _made_from(made: MadeFrom | None) -> Iterator[str]:
    """The session that a fork or a rerun was made from."""
    if made is None:
        return
    after = f" after {plain(made.after)}" if made.after else ""
    cost = f"; the copied steps had cost ${made.cost_usd:.4f}" if made.cost_usd else ""
    yield f"{made.verb:<7}  of {made.session}{after}{cost}"


def _head(view: SessionView, copied: int) -> Iterator[str]:
    yield f"session  {view.id}  {view.kind}  {plain(view.title)}"
    yield from _about(view)
    yield from _made_from(view.made_from)
    yield f"status   {view.status}"
    if view.phase is not None:
        yield f"phase    {phase_text(view.phase)}"
    if view.reason is not None:
        yield f"reason   {reason_line(view) or reason_text(view.reason.model_dump())}"
    if view.cwd is not None:
        yield f"folder   {plain(view.cwd, most=400)}"
    if view.worktree is not None:
        yield from _own_folder(view.worktree)
        yield from work_lines(view.id, view.status, view.worktree) if view.ended else ()
    yield f"created  {local_time(view.created_at)}"
    if view.ended_at is not None:
        yield f"ended    {local_time(view.ended_at)}"
    counters = view.counters
    yield (
        f"counters  {plural(counters.steps, 'step')}, {plural(counters.iterations, 'iteration')}"
        + (f" and {copied} copied," if copied else ",")
        + f" attempts lost {counters.attempts_lost}, attempts failed {counters.attempts_failed},"
        f" phase retries {counters.phase_retries}, stops {counters.stops}"
    )
    yield from _progress(view)
    yield from usage_lines(view)
    yield from _troubled_loops(view)
    yield from _notices(view)


def _troubled_loops(view: SessionView) -> Iterator[str]:
    """The outermost loops and lists that ran again, stopped, or lost attempts."""
    for node in view.progress.nodes:
        # Steps count no attempts of their own; those that ran again are among the steps.
        if node.state == "pending":
            continue
        if node.attempts_failed or node.attempts_lost or node.run > 1 or node.stops:
            yield (
                f"  {plain(node.label)}: run {node.run}, attempts lost {node.attempts_lost},"
                f" failed {node.attempts_failed}, stops {node.stops}"
            )


def phase_text(view: RoleView) -> str:
    """Formats the role and phase of a session, and whether it may end.

    >>> phase_text(RoleView(role="dev", phase="under_review", round=2))
    'dev under_review, round 2'
    """
    parts = [f"{view.role} {view.phase}"]
    if view.children:
        parts.append(plain(", ".join(view.children), most=200))
    if view.round:
        parts.append(f"round {view.round}")
    if view.may_end != "clean":
        parts.append(f"{'must' if view.may_end == 'block' else 'should'} not end: {view.text}")
    return ", ".join(parts)


def _progress(view: SessionView) -> Iterator[str]:
    """The share of the work that is done, and the estimate of the rest."""
    share, left_s = view.progress.share, view.progress.left_s
    if share is None or view.ended:
        return
    at_most = "at most " if view.progress.at_most else ""
    rest = f", {at_most}about {elapsed(round(left_s * 1000))} left" if left_s is not None else ""
    yield f"progress  {int(share * 100)} %{rest}"


def _own_folder(own: OwnFolderView) -> Iterator[str]:
    """Where the folder comes from, and what became of it."""
    yield f"origin   {plain(own.origin, most=400)}"
    if own.branch is not None:
        yield f"branch   {plain(own.branch)}, from {plain(own.base or '')[:12]}"
    if own.applied is not None:
        yield f"applied  {plain(own.applied, most=400)}"
    if own.cleaned:
        yield (
            "removed  the folder; its work is on the branch"
            if own.branch
            else "removed  the folder"
        )


def _notices(view: SessionView) -> Iterator[str]:
    """What a person should know: why it needs attention, its warnings and its notes."""
    named = {"attention ": view.needs_attention, "warning ": view.warnings, "note    ": view.notes}
    for name, texts in named.items():
        yield from (f"{name} {plain(with_local_times(text), most=400)}" for text in texts)


def _about(view: SessionView) -> Iterator[str]:
    """The description of a loop: its task, doer and checkers."""
    if view.label and view.task:
        yield f"task     {plain(view.task)}"
    if view.doer:
        yield f"doer     {plain(view.doer)}"
    if view.checkers:
        yield f"checkers  {plain(', '.join(view.checkers), most=400)}"


def _around(entry: LedgerEntry) -> str:
    """The entry's loop with the iterations of the loops around it, if the entry has its address.

    >>> inner = LedgerEntry(loop="outer/inner", run=2, iteration=3, verdict="retry")
    >>> _around(inner), _around(inner.model_copy(update={"address": "outer~1[4]/inner~2[3]"}))
    ('outer/inner', 'outer~1[4]/inner')
    """
    around = (entry.address or "").rpartition("/")[0]
    return f"{around}/{entry.loop.rpartition('/')[2]}" if around else entry.loop


def _iteration(entry: LedgerEntry, *, name: str, copied: bool) -> Iterator[str]:
    run = f", run {entry.run}" if entry.run > 1 else ""
    also = ", copied" if copied else ""
    stale = f" ({entry.stale} is stale)" if entry.stale is not None else ""
    recheck = ", recheck" if entry.recheck else ""
    head = f"{name}{run}, iteration {entry.iteration}{recheck}: {entry.verdict}{stale}"
    yield f"{head}{also}{_cost(entry)}"
    if entry.address is not None and "/" in entry.address:
        yield f"  address: {plain(entry.address)}"
    if entry.work:  # a loop of a flow has no doer
        yield "  doer"
    yield from _some(entry.work)
    for check in entry.checks:
        counts = counts_text(check.get("counts"))
        verdict = check.get("verdict") if check.get("flaky") is None else "flaky"
        after = f"{_duration(check)}{counts and f', {counts}'}"
        yield f"  {plain(check.get('name'))}: {plain(verdict)}{after}"
        yield from _some(str(check.get("feedback") or ""))
        if check.get("raw"):
            yield "  the whole answer:"
            yield from _some(str(check["raw"]))
    yield from _folder_lines(entry)
    if entry.reason is not None and (entry.verdict != "accept" or entry.reason.code == "user_skip"):
        yield f"  why: {reason_text(entry.reason.model_dump())}"


def _folder_lines(entry: LedgerEntry) -> Iterator[str]:
    """What the folder's comparison after the checkers has shown."""
    changed = entry.changed_by_checkers
    if changed is not None and changed.git:
        git = ", ".join(map(plain, changed.git))
        yield f"  changed in git while checkers ran, put back: {git}"
    if changed is not None and changed.count:
        end = "put back" if changed.put_back else "left as they are"
        files = ", ".join(map(plain, changed.files))
        more = f" and {changed.count - len(changed.files)} more"
        more = more if changed.count > len(changed.files) else ""
        yield f"  changed while checkers ran, {end}: {files}{more}"
    kinds = (("tests", entry.tests_changed), ("configures checks", entry.checker_changed))
    for what, names in kinds:
        if names:
            yield f"  changed by the work ({what}): {', '.join(map(plain, names))}"
    if entry.not_compared is not None:
        yield f"  folder not compared after the checkers: {plain(entry.not_compared)}"


def _cost(entry: LedgerEntry) -> str:
    tokens = entry.input_tokens + entry.output_tokens
    parts = [] if entry.cost_usd is None else [f"${entry.cost_usd:.4f}"]
    parts += [plural(tokens, "token")] if tokens else []
    return f" ({', '.join(parts)})" if parts else ""


def _duration(check: Mapping[str, object]) -> str:
    started, ended = check.get("started_ms"), check.get("ended_ms")
    if not isinstance(started, int) or not isinstance(ended, int):
        return ""
    return f" ({elapsed(ended - started)})"


def _some(text: str) -> Iterator[str]:
    """The last lines of a text, which have the verdicts and errors."""
    lines = list(block(text, indent="    "))
    if len(lines) > _MOST_LINES:
        yield f"    ... {plural(len(lines) - _MOST_LINES, 'line')} before; see --json"
    yield from lines[-_MOST_LINES:]
