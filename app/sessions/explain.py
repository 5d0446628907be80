"""Explains why a session waits or why it ended, and suggests the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue, ValidationError

from app.core.addresses import SessionRef, path_of
from app.core.folders import is_folder
from app.core.program import SCHEMA_VERSION, Action, Loop, Program, Step, is_before_work
from app.core.records import StepRecord
from app.core.routing import full_queue, queue_of
from app.core.states import ACCEPTED, ENDED, SessionStatus
from app.fleet.admission import tools_of
from app.fleet.overview import Depths
from app.fleet.troubles import Troubles, troubles_at
from app.history.values import written_name
from app.redaction import without_keys
from app.sessions.outputs import newest_troubles
from app.sessions.presenters import budget_lines, own_folder_view, shown_status
from app.sessions.suggestions import Ended, suggestions
from app.sessions.wait_reasons import (
    LOOKS_FIRST,
    Ahead,
    Around,
    Holder,
    wait_for_named_lock,
    wait_of,
)
from app.shared import named_waits
from app.store.store import Store
from leadhand.errors import ProgramNewer, SessionUnknown
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import MAX_ITERATIONS_CEILING
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.explain import Cause, ExplainView, SuggestedAction, Wait
from leadhand.models.views.fleet import WorkerView

#: Maximum number of waiting steps, and depth of child sessions, in an explanation.
STEPS, DEPTH = 20, 5

#: The resume option that raises each budget.
_RAISES = {
    "cost_usd": "--max-cost",
    "tokens": "--max-tokens",
    "steps": "--max-steps",
    "iterations": "--max-total-iterations",
    "wall_s": "--max-wall",
    "stage_stops": "--max-stage-stops",
    "stops": "--max-stops",
}
_HEADLINES: Mapping[str, str] = {
    SessionStatus.STOPPED: "it continues when it is resumed",
    SessionStatus.STOPPING: "running steps are being released",
    SessionStatus.EXITING: "a step called exit, and running steps are being ended",
    SessionStatus.ABORTING: "running steps are being killed",
    SessionStatus.COMPLETED: "all of its steps are done",
}


class Explainer:
    """Builds explanations. Raises SessionUnknown."""

    def __init__(
        self,
        store: Store,
        program: Callable[[str], Program],
        *,
        workers: Callable[[], list[WorkerView]],
        workers_of: Callable[[Mapping[str, str]], list[WorkerView]],
        at_work: Callable[[], list[WorkerView]],
        depths: Depths,
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self._store = store
        self._program = program
        self._workers = workers
        #: Returns the workers with the tools that the folder of a session's command has now.
        self._workers_of = workers_of
        self._at_work = at_work
        self._depths = depths

    def explain(self, session: str) -> ExplainView:
        """Explains why a session waits or ended, with next commands. Raises SessionUnknown."""
        ref = self._store.ref(session)
        fields = self._store.fields(ref) if ref else {}
        if ref is None or "status" not in fields:
            raise SessionUnknown(session)
        return self._of(ref, fields, DEPTH)

    def _of(self, ref: SessionRef, fields: Mapping[str, str], deeper: int) -> ExplainView:
        status = shown_status(self._store, ref, fields)
        reason = Reason.model_validate_json(fields["reason"]) if fields.get("reason") else None
        waits = [] if status in ENDED else list(self._waits(ref, fields, deeper))
        if waits and deeper == DEPTH:
            waits = [*self._trouble_waits(ref, fields), *waits]
        own, child = _own_part(reason)
        causes = self._causes(fields, reason, own)
        actions = self._actions(ref, fields, own) if deeper == DEPTH else []
        resumes = not actions or any(one.verb == "resume" for one in actions)
        commands = [*self._commands(ref, fields, own, resumes=resumes)]
        commands += [f"leadhand explain {child}"] if child else []
        commands += [one.command for one in actions]
        commands += [command for wait in waits for command in wait.next]
        return ExplainView(
            session=ref.id,
            status=status,
            text=_headline(status, waits, causes, self._phase(fields, causes)),
            waits=waits,
            causes=causes,
            worktree=own_folder_view(fields),
            next=list(dict.fromkeys(commands)),
            actions=actions,
        )

    def _causes(
        self, fields: Mapping[str, str], reason: Reason | None, own: Reason | None
    ) -> list[Cause]:
        """The chain of causes; the session's own ones with the names that its document has."""
        if reason is None or own is None:
            return []
        try:
            program: Program | None = self._program(fields["program"])
        except ProgramNewer:
            program = None
        most = len(list(own.chain())) if program is not None else 0
        return [
            Cause(
                code=link.code,
                text=link.text,
                at=link.at or None,
                label=written_name(program, link.at) if program and link.at and n < most else "",
            )
            for n, link in enumerate(reason.chain())
        ]

    def _actions(
        self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None
    ) -> list[SuggestedAction]:
        """What may bring a session on that has ended."""
        if fields["status"] not in ENDED or fields["status"] == SessionStatus.COMPLETED:
            return []
        try:
            program = self._program(fields["program"])
        except ProgramNewer:
            return []
        stopped = fields["status"] == SessionStatus.STOPPED
        budget = self._budget_options(fields)
        options = budget if stopped else self._limit_options(ref, fields, reason)
        ended = Ended(
            session=ref.id,
            kind=fields["kind"],
            status=fields["status"],
            program=program,
            resume_options=options,
            resume_arguments=_arguments_of(options),
            refusing=self._refusing(ref, program, reason),
            tools=tuple(one.name for one in tools_of(self._workers_of(fields)) if one.usable_at),
            has_document=(request := self._store.copies().request(ref)) is not None,
            graph=_graph(fields["kind"], request),
        )
        return suggestions(ended, reason)

    def _refusing(
        self, ref: SessionRef, program: Program, reason: Reason | None
    ) -> tuple[str, ...]:
        """The checks that did not accept in the last iteration of a loop, of several checks."""
        at = reason.root.at if reason is not None else None
        node = program.node(path_of(at)) if at and program.has(path_of(at)) else None
        turn = self._store.turns(ref, [at]).get(at) if at else None
        if not isinstance(node, Loop) or turn is None:
            return ()
        checks = [
            f"{at}[{turn.iteration}]/{one.id}"
            for one in node.body
            if isinstance(one, Step) and one.action is Action.CHECK
        ]
        records = self._store.steps(ref, checks)
        refused = [a for a in checks if a in records and records[a].verdict != "accept"]
        return tuple(refused) if len(checks) > 1 else ()

    def _phase(self, fields: Mapping[str, str], causes: list[Cause]) -> str:
        """The phase of a workflow in which it ended, as `phase 'NAME': `; else ''."""
        at = causes[-1].at if causes else None
        if fields.get("kind") != "workflow" or not at:
            return ""
        node = path_of(at).partition("/")[0]
        try:
            program = self._program(fields["program"])
        except ProgramNewer:
            return ""
        label = program.node(node).label if program.has(node) else None
        return f"phase {without_keys(label or node)!r}: "

    def _trouble_waits(self, ref: SessionRef, fields: Mapping[str, str]) -> Iterator[Wait]:
        """Yields the current problems of Redis and of the workers at the session's place."""
        for text in troubles_at(fields["place"], self._workers(), self._troubles):
            yield Wait(session=ref.id, why="trouble", text=text, next=["leadhand doctor"])

    def _waits(self, ref: SessionRef, fields: Mapping[str, str], deeper: int) -> Iterator[Wait]:
        try:
            program = self._program(fields["program"])
        except ProgramNewer as error:
            yield _schema_wait(ref, error.detail)
            return
        workers = self._workers()
        if int(fields.get("schema", 1)) > max(
            (w.schema_version for w in workers), default=SCHEMA_VERSION
        ):
            needs = fields.get("schema", "0")
            yield _schema_wait(ref, f"its program needs workers with schema {needs}; upgrade them")
        records = self._store.steps(ref, self._store.members(ref, "live", STEPS))
        if any(record.state == "ready" for record in records.values()):
            workers = self._at_work()  # whose slots may be what a step waits for
        in_line = self._in_line(ref, records)
        written = dict(self._store.outputs().attempts(ref)) if records else {}
        running = [f"{a}#{r.fence}" for a, r in records.items() if r.state == "running"]
        troubles = newest_troubles(self._store, ref, [name for name in running if name in written])
        named = named_waits(self._store, ref)
        for owner, one in sorted(named.items()):
            if not owner[1]:
                waits = wait_for_named_lock(one)
                yield waits.model_copy(update={"session": ref.id, "state": "waiting"})
        for address, record in sorted(records.items()):
            step = program.step(address)
            queue = full_queue(queue_of(step), place=fields["place"], session=ref.id)
            around = Around(
                session=ref.id,
                status=fields["status"],
                place=fields["place"],
                queue=queue,
                now_ms=self._store.now_ms(),
                workers=workers,
                depth=self._depths([queue]).get(queue, 0) if record.state == "ready" else 0,
                holders=self._holders(ref, record.blocked) if record.blocked else (),
                ahead=self._ahead(ref, address, record.blocked) if record.blocked else None,
                slot_ms=self._store.fleet().slot(record.blocked or "") if record.paced else None,
                before=self._before(ref, address, record) if record.paced else 0,
                in_line=in_line.get(address, ""),
                output_ms=written.get(f"{address}#{record.fence}"),
                trouble=troubles.get(f"{address}#{record.fence}"),
                is_plan=fields["kind"] == "plan",
                before_work=is_before_work(step),
                named=named.get((ref.id, address)),
            )
            wait = wait_of(address, step.label or step.id, record, around)
            yield self._with_child(ref, wait, deeper)

    def _in_line(self, ref: SessionRef, records: Mapping[str, StepRecord]) -> dict[str, str]:
        """The steps that wait for a slot in their session's window, with its queue or key."""
        if not any(record.state == "ready" for record in records.values()):
            return {}
        lines = [line.split("<", 2) for line in self._store.members(ref, "waiting", 1000)]
        return {address: name for name, _, address in lines}

    def _before(self, ref: SessionRef, address: str, record: StepRecord) -> int:
        """The number of tickets before a step's own."""
        tickets = self._store.fleet().tickets(record.blocked or "")
        line = [ticket.partition("<")[2] for ticket in tickets]
        member = f"{ref.member}{address}"
        return line.index(member) if member in line else 0

    def _with_child(self, ref: SessionRef, wait: Wait, deeper: int) -> Wait:
        """Adds the child's own waits to a step that waits for a child, down to DEPTH."""
        if wait.child is None or deeper == 0:
            return wait
        child = SessionRef(wait.child, ref.root)
        fields = self._store.fields(child)
        if "status" not in fields:
            text = f"child session {child.id} was deleted; the step fails within a minute"
            return wait.model_copy(update={"text": text, "next": [f"leadhand logs {ref.id}"]})
        found = self._of(child, fields, deeper - 1)
        return wait.model_copy(update={
            "text": f"child session {child.id} is {found.status}: {found.text}",
            "beneath": found.waits,
            "next": list(dict.fromkeys([*wait.next, *found.next])),
        })  # fmt: skip

    def _holders(self, ref: SessionRef, lock: str) -> list[Holder]:
        """The holders that block a step; sessions of one tree do not block each other's folder."""
        lines = self._store.fleet().overlapping("holds", lock)
        return [self._holder(held, line) for held, line in lines if _excludes(ref, lock, line)][:5]

    def _ahead(self, ref: SessionRef, address: str, lock: str) -> Ahead | None:
        """The earliest ticket for a folder above or below that precedes this step's own."""
        tickets = self._store.fleet().overlapping("tickets", lock) if is_folder(lock) else []
        lines = [(held, *line.split("<", 1)) for held, line in tickets]
        member = f"{ref.member}{address}"
        own = min((order for _, order, who in lines if who == member), default="~")
        earlier = [
            (order, held, who)
            for held, order, who in lines
            if held != lock and order < own and _excludes(ref, lock, who)
        ]
        if not earlier:
            return None
        _, held, who = min(earlier)
        return Ahead(who.partition("|")[0], held)

    def _holder(self, lock: str, line: str) -> Holder:
        session, root, address = line.split("|", 2)
        ref = SessionRef(session, root)
        turn = self._store.turns(ref, [address]).get(address)
        step = self._store.steps(ref, [address]).get(address)
        since = turn.since if turn else step.since if step else None
        return Holder(session, root, address, since, lock)

    def _commands(
        self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None, *, resumes: bool
    ) -> Iterator[str]:
        """Yields commands for the session as a whole; without `resumes` none that resumes it."""
        yield from self._session_commands(ref, fields, reason, resumes=resumes)
        if fields["status"] in ENDED and self._store.children(ref):
            yield f"leadhand ls --parent {ref.id}"
        own = own_folder_view(fields)
        if fields["status"] in ENDED and own is not None and own.is_to_be_applied:
            force = "" if fields["status"] in ACCEPTED else " --force"
            yield f"leadhand apply {ref.id}{force}"

    def _session_commands(
        self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None, *, resumes: bool
    ) -> Iterator[str]:
        match fields["status"]:
            case SessionStatus.STOPPED if resumes:
                yield f"leadhand resume {ref.id}{self._budget_options(fields)}"
            case SessionStatus.FAILED:
                if resumes:
                    yield f"leadhand resume {ref.id}{self._limit_options(ref, fields, reason)}"
                yield f"leadhand show {ref.id}"
                yield f"leadhand logs {ref.id}"
            case SessionStatus.STOPPING | SessionStatus.EXITING:
                yield f"leadhand abort {ref.id}"
            case SessionStatus.COMPLETED | SessionStatus.EXITED | SessionStatus.ABORTED:
                yield f"leadhand show {ref.id}"
            case _:
                return

    def _limit_options(
        self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None
    ) -> str:
        """The resume option that raises the exceeded limit."""
        links = list(reason.chain()) if reason else []
        limits = (ReasonCode.BUDGET, ReasonCode.CIRCUIT_OPEN, ReasonCode.STOP_LIMIT)
        if any(link.code in limits for link in links):
            return self._budget_options(fields)
        return self._iteration_option(ref, links[-1]) if links else ""

    def _iteration_option(self, ref: SessionRef, root: Reason) -> str:
        """The resume option that raises max_iterations of the loop that reached it."""
        if root.code is not ReasonCode.MAX_ITERATIONS or root.at is None:
            return ""
        turn = self._store.turns(ref, [root.at]).get(root.at)
        if turn is None or not turn.reason or turn.reason.code is not ReasonCode.MAX_ITERATIONS:
            return ""
        return f" --max-iterations {min(2 * max(1, turn.max), MAX_ITERATIONS_CEILING)}"

    def _budget_options(self, fields: Mapping[str, str]) -> str:
        """The resume options that raise the exhausted budgets."""
        lines = budget_lines(fields, self._store.now_ms())
        passed = [(n, line) for n, line in lines.items() if line.used >= line.limit]
        return "".join(f" {_RAISES[n]} {line.used + line.limit:.15g}" for n, line in passed)


def _graph(kind: str, request: str | None) -> GraphDocument | None:
    """The stored document of a graph; None if this version cannot read it."""
    if kind != "graph" or request is None:
        return None
    try:
        return GraphDocument.model_validate_json(request)
    except ValidationError:
        return None


def _excludes(ref: SessionRef, lock: str, line: str) -> bool:
    """Whether a hold or ticket of this member blocks a session."""
    session, root, _ = line.split("|", 2)
    return not is_folder(lock) or root != ref.root or session == ref.id


def _arguments_of(options: str) -> dict[str, JsonValue]:
    """The options of `leadhand resume` as fields of the call."""
    words = options.split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    found: dict[str, JsonValue] = {}
    budget: dict[str, JsonValue] = {
        name: _number(given[option]) for name, option in _RAISES.items() if option in given
    }
    if "--max-iterations" in given:
        found["max_iterations"] = int(given["--max-iterations"])
    return {**found, "budget": budget} if budget else found


def _number(text: str) -> JsonValue:
    """A limit as JSON: those that count something are whole numbers, which strict models require.

    >>> _number("4"), _number("0.5")
    (4, 0.5)
    """
    value = float(text)
    return int(value) if value.is_integer() else value


def _own_part(reason: Reason | None) -> tuple[Reason | None, str | None]:
    """A reason without the causes in a child session, and that session.

    The addresses of a child's causes are in the child's program.
    """
    if reason is None:
        return None, None
    if reason.child is not None:
        return reason.model_copy(update={"beneath": None}), reason.child
    beneath, child = _own_part(reason.beneath)
    return reason.model_copy(update={"beneath": beneath}), child


def _headline(status: str, waits: list[Wait], causes: list[Cause], phase: str) -> str:
    """Why it has this status, without the status itself: readers have that beside it."""
    if status in _HEADLINES:
        return _HEADLINES[status]
    if status in ENDED:
        root = causes[-1] if causes else None
        return f"{phase}{root.text or root.code}" if root else "no reason is known"
    held = [wait for wait in waits if wait.why != "running"]
    if not waits:
        return "no step is ready, running or parked; run leadhand fsck"
    if not held:
        return LOOKS_FIRST if waits[0].text.endswith(LOOKS_FIRST) else "it is running"
    first = f"{shlex.join([held[0].address]) if held[0].address else 'it'}: {held[0].text}"
    return first if len(held) == 1 else f"{first}; and {len(held) - 1} more"


def _schema_wait(ref: SessionRef, text: str) -> Wait:
    return Wait(session=ref.id, why="schema", text=text, state="ready", next=["leadhand workers"])
