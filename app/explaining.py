"""Why a session waits, why it ended, and what to do next: read from Redis when somebody asks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping

from app.decide import queue_of
from app.errors import ProgramNewer, SessionUnknown
from app.keys import SessionRef
from app.pictures import budget_lines
from app.program import SCHEMA_VERSION, Program
from app.reasons import Reason, ReasonCode
from app.records import StepRecord
from app.states import ENDED, SessionStatus
from app.store import Store
from app.views import Cause, ExplainView, Wait, WorkerView
from app.waits import Around, Holder, wait_of
from app.watching import Depths
from leadhand.documents import MAX_ITERATIONS_CEILING

#: How many waiting steps are told of, and how deep the tree is followed.
STEPS, DEPTH = 20, 5

#: What resume needs to be told where a budget was used up.
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
    SessionStatus.STOPPED: "it was stopped, and goes on when it is resumed",
    SessionStatus.STOPPING: "it is to stop, and waits for what still runs",
    SessionStatus.EXITING: "somebody inside called exit, and what runs is being ended",
    SessionStatus.ABORTING: "it is being aborted, and what runs is being killed",
    SessionStatus.COMPLETED: "it is done",
}


class Explainer:
    """Looks, and changes nothing. Raises SessionUnknown for ids that are not there."""

    def __init__(
        self,
        store: Store,
        program: Callable[[str], Program],
        *,
        workers: Callable[[], list[WorkerView]],
        depths: Depths,
    ) -> None:
        self._store = store
        self._program = program
        self._workers = workers
        self._depths = depths

    def explain(self, session: str) -> ExplainView:
        """Why a session stands where it stands."""
        ref = self._store.ref(session)
        fields = self._store.fields(ref) if ref else {}
        if ref is None or "status" not in fields:
            raise SessionUnknown(session)
        return self._of(ref, fields, DEPTH)

    def _of(self, ref: SessionRef, fields: Mapping[str, str], deeper: int) -> ExplainView:
        status = fields["status"]
        reason = Reason.model_validate_json(fields["reason"]) if fields.get("reason") else None
        waits = [] if status in ENDED else list(self._waits(ref, fields, deeper))
        causes = [_cause(link) for link in reason.chain()] if reason else []
        commands = [*self._ways(ref, fields, reason), *(c for wait in waits for c in wait.next)]
        return ExplainView(
            session=ref.id,
            status=status,
            text=_headline(status, waits, causes),
            waits=waits,
            causes=causes,
            next=list(dict.fromkeys(commands)),
        )

    def _waits(self, ref: SessionRef, fields: Mapping[str, str], deeper: int) -> Iterator[Wait]:
        try:
            program = self._program(fields["program"])
        except ProgramNewer as error:
            yield _too_new(ref, str(error))
            return
        workers = self._workers()
        if int(fields.get("schema", 1)) > max(
            (w.schema_version for w in workers), default=SCHEMA_VERSION
        ):
            needs = fields.get("schema", "0")
            yield _too_new(ref, f"its program needs workers that know schema {needs}; upgrade them")
        records = self._store.steps(ref, self._store.members(ref, "live", STEPS))
        in_line = self._in_line(ref, records)
        for address, record in sorted(records.items()):
            step = program.step(address)
            queue = queue_of(step) + (f"@{fields['place']}" if fields["place"] else "")
            around = Around(
                session=ref.id,
                status=fields["status"],
                place=fields["place"],
                queue=queue,
                now_ms=self._store.now_ms(),
                workers=workers,
                depth=self._depths([queue]).get(queue, 0) if record.state == "ready" else 0,
                holders=self._holders(record.blocked) if record.blocked else (),
                slot_ms=self._store.fleet().slot(record.blocked or "") if record.paced else None,
                before=self._before(ref, address, record) if record.paced else 0,
                in_line=in_line.get(address, ""),
            )
            wait = wait_of(address, step.label or step.id, record, around)
            yield self._with_child(ref, wait, deeper)

    def _in_line(self, ref: SessionRef, records: Mapping[str, StepRecord]) -> dict[str, str]:
        """The steps that wait for a slot of their session's window, and for what that is."""
        if not any(record.state == "ready" for record in records.values()):
            return {}
        lines = [line.split("<", 2) for line in self._store.members(ref, "waiting", 1000)]
        return {address: name for name, _, address in lines}

    def _before(self, ref: SessionRef, address: str, record: StepRecord) -> int:
        """How many stand before a step in the line of what it waits for."""
        tickets = self._store.fleet().tickets(record.blocked or "")
        line = [ticket.partition("<")[2] for ticket in tickets]
        member = f"{ref.member}{address}"
        return line.index(member) if member in line else 0

    def _with_child(self, ref: SessionRef, wait: Wait, deeper: int) -> Wait:
        """A step that waits for a child, with what that waits for; as deep as somebody reads."""
        if wait.child is None or deeper == 0:
            return wait
        child = SessionRef(wait.child, ref.root)
        fields = self._store.fields(child)
        if "status" not in fields:
            text = f"child session {child.id} is gone; within a minute it goes on without that"
            return wait.model_copy(update={"text": text, "next": [f"leadhand logs {ref.id}"]})
        found = self._of(child, fields, deeper - 1)
        return wait.model_copy(update={
            "text": f"child session {child.id} is {found.status}: {found.text}",
            "beneath": found.waits,
            "next": list(dict.fromkeys([*wait.next, *found.next])),
        })  # fmt: skip

    def _holders(self, lock: str) -> list[Holder]:
        return [self._holder(line) for line in self._store.fleet().holders(lock)[:5]]

    def _holder(self, line: str) -> Holder:
        session, root, address = line.split("|", 2)
        ref = SessionRef(session, root)
        turn = self._store.turns(ref, [address]).get(address)
        step = self._store.steps(ref, [address]).get(address)
        return Holder(session, root, address, turn.since if turn else step.since if step else None)

    def _ways(
        self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None
    ) -> Iterator[str]:
        """What can be done about the session as a whole."""
        yield from self._own_ways(ref, fields, reason)
        if fields["status"] in ENDED and self._store.children(ref):
            yield f"leadhand ls --parent {ref.id}"

    def _own_ways(
        self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None
    ) -> Iterator[str]:
        match fields["status"]:
            case SessionStatus.STOPPED:
                yield f"leadhand resume {ref.id}{self._spent(fields)}"
            case SessionStatus.FAILED:
                yield f"leadhand resume {ref.id}{self._raised(ref, fields, reason)}"
                yield f"leadhand show {ref.id}"
                yield f"leadhand logs {ref.id}"
            case SessionStatus.STOPPING | SessionStatus.EXITING:
                yield f"leadhand abort {ref.id}"
            case SessionStatus.COMPLETED | SessionStatus.EXITED | SessionStatus.ABORTED:
                yield f"leadhand show {ref.id}"
            case _:
                return

    def _raised(self, ref: SessionRef, fields: Mapping[str, str], reason: Reason | None) -> str:
        """The option that raises the limit which was passed."""
        links = list(reason.chain()) if reason else []
        limits = (ReasonCode.BUDGET, ReasonCode.CIRCUIT_OPEN, ReasonCode.STOP_LIMIT)
        if any(link.code in limits for link in links):
            return self._spent(fields)
        return self._more_turns(ref, links[-1]) if links else ""

    def _more_turns(self, ref: SessionRef, root: Reason) -> str:
        """The ceiling of the loop that reached it, as resume raises it; a child's is its own."""
        if root.code is not ReasonCode.MAX_ITERATIONS or root.at is None:
            return ""
        turn = self._store.turns(ref, [root.at]).get(root.at)
        if turn is None or not turn.reason or turn.reason.code is not ReasonCode.MAX_ITERATIONS:
            return ""
        return f" --max-iterations {min(2 * max(1, turn.max), MAX_ITERATIONS_CEILING)}"

    def _spent(self, fields: Mapping[str, str]) -> str:
        """The options that raise what is used up."""
        lines = budget_lines(fields, self._store.now_ms())
        passed = [(n, line) for n, line in lines.items() if line.used >= line.limit]
        return "".join(f" {_RAISES[n]} {line.used + line.limit:.15g}" for n, line in passed)


def _cause(link: Reason) -> Cause:
    where = link.at or ""
    return Cause(code=link.code.value, text=link.text, at=where or None)


def _headline(status: str, waits: list[Wait], causes: list[Cause]) -> str:
    if status in _HEADLINES:
        return _HEADLINES[status]
    if status in ENDED:
        root = causes[-1] if causes else None
        return f"it is {status}: {root.text or root.code}" if root else f"it is {status}"
    held = [wait for wait in waits if wait.why != "running"]
    if not waits:
        return "nothing of it is ready, running or parked; see leadhand fsck"
    if not held:
        return "it is at work"
    first = f"{shlex.join([held[0].address]) if held[0].address else 'it'}: {held[0].text}"
    return first if len(held) == 1 else f"{first}; and {len(held) - 1} more"


def _too_new(ref: SessionRef, text: str) -> Wait:
    return Wait(session=ref.id, why="schema", text=text, state="ready", next=["leadhand workers"])
