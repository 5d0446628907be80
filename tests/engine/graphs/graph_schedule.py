"""Runs one random graph on the real scripts, under a seeded schedule of faults and verbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Grant, Reply
from app.core.routing import runs_last
from app.errors import PositionRefused, ReferenceUnresolved
from app.sessions.attempts import Work
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from app.sessions.local_work import is_skipped, skipped_outcome
from leadhand.errors import ControlRefused
from leadhand.graphs.documents import GraphDocument
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.driving import LEASE_MS
from tests.engine.graphs.graph_look import Look, Names
from tests.engine.graphs.graph_world import failed
from tests.engine.graphs.random_graphs import DECLINED, Drawn, references
from tests.engine.graphs.reference import Failed, interpret
from tests.engine.graphs.spelling import document_of
from tests.engine.world import World
from workers.tools.tool import STEPS, expect_success

#: A step that is lost more often fails for good.
LOST_AT_MOST = 4
ROUNDS = 2000
#: How often a step is claimed, settled, lost, settled too late; a stop, a skip; a lost message.
_WEIGHTS = {"claim": 45, "settle": 35, "die": 5, "late": 5, "stop": 3, "skip": 4, "drop": 3}


class Schedule:
    """Claims, settles, loses, stops, skips, resumes and forks at random, until all is completed."""

    #: How many forks may follow, each of the one before.
    forks: Sequence[int] = (0, 0, 0, 1, 2)

    def __init__(self, world: World, drawn: Drawn, seed: int) -> None:
        self._rng = Random(f"schedule {seed}")
        self._steps, self._inputs, self._tools = drawn
        self._needs = {step["name"]: step["needs"] for step in self._steps}
        self._limits = {s["name"]: s["at_once"] for s in self._steps if s.get("at_once")}
        self.world, self.engine = world, world.engine
        self.world.hints.clear()
        document = GraphDocument.model_validate(document_of(drawn, seed))
        self._go_to(self.engine.submit.document(document).session)
        #: The tool of all steps that run.
        self._tool = "echo"
        #: The steps that a user skipped.
        self._skipped = set[str]()
        #: The steps that a fork has from its origin.
        self._copied = set[str]()
        #: How often each kind of event has happened.
        self.seen: Counter[str] = Counter()

    def _go_to(self, session: str) -> None:
        self.id, self.ref = session, SessionRef(session, session)
        registry = self.engine.registry
        self._names = Names(registry.program(registry.facts(self.ref).program))
        #: What workers do, and what those did that have lost their step.
        self._held: list[Work] = []
        self._old: list[Work] = []
        self._failures: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def _look(self) -> Look:
        return self._names.look(self.engine.store, self.ref)

    def run(self) -> None:
        """Drive the session and its forks to their ends; compare each with the reference."""
        forks = self._rng.choice(self.forks)
        for _ in range(ROUNDS):
            if self._held or self.world.hints:
                self._round()
                continue
            match self._look().status:
                case "completed":
                    self._compare()
                    forks -= 1
                    if forks < 0 or not self._fork():
                        return
                case "failed":
                    self._require_last("failure")
                    self._mend()
                case "stopped":
                    self._require_last("stop")
                    self._resume()
                case _:
                    self._wait()
        raise AssertionError(f"it is {self._look().status} after {ROUNDS} rounds")

    def _require_last(self, after: str) -> None:
        """Steps that always run have done so, unless a user skips them."""
        look = self._look()
        always = {step["name"] for step in self._steps if step["join"] == "always"} - self._skipped
        assert always <= look.last | look.done, f"{always} did not run at the {after}"
        self.seen[f"last step at a {after}"] += len(always & look.last)

    # What workers do

    def _round(self) -> None:
        (draw,) = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        hints, held = self.world.hints, self._held
        if draw == "late" and self._old:
            self._report_late()
        elif draw == "stop":
            with suppress(ControlRefused):
                self.engine.control.apply(self.id, "stop")
                self.seen["stop"] += 1
        elif draw == "skip":
            self._skip_pending()
        elif draw == "drop" and hints:
            self.seen["lost message"] += 1
            hints.pop(self._rng.randrange(len(hints)))
        elif draw == "die" and held:
            self._lose(self._rng.choice(held))
        elif hints and (draw == "claim" or not held):
            self._claim()
        elif held:
            self._finish(self._rng.choice(held))

    def _wait(self) -> None:
        ms = self._rng.choice((1_100, 3_000, LEASE_MS + 2_000))
        self.world.later(ms)

    def _lose(self, work: Work) -> None:
        """Its worker dies; it may still report when another has the step."""
        if self._lost[work.grant.address] >= LOST_AT_MOST:
            return self._finish(work)
        self.seen["kill"] += 1
        self._lost[work.grant.address] += 1
        self._held.remove(work)
        self._old.append(work)
        return None

    def _finish(self, work: Work) -> None:
        self._held.remove(work)
        self._settle(work)

    def _report_late(self) -> None:
        """A worker has lost its step: what it says counts only if no other has that now."""
        held = {one.grant.address for one in self._held}
        work = max(self._old, key=lambda one: one.grant.address in held)
        self._old.remove(work)
        is_taken = work.grant.address in held
        word = self._settle(work)
        assert word == "superseded" or not is_taken, f"{work.grant.address} is another's"
        self.seen["late report"] += 1
        self.seen["late report of a step that another has"] += is_taken

    def _claim(self) -> None:
        ref, address = self._rng.choice(self.world.hints)
        if self._rng.random() < 0.9:  # otherwise the message comes twice
            self.world.hints.remove((ref, address))
        if ref == self.ref:  # else it is of a graph before this one
            self._take(self.world.claim(ref, address))

    def _take(self, answer: Reply) -> None:
        if not answer.grants:
            return
        for grant in answer.grants:
            self.seen["beside another"] += bool(self._held)
            self._held.append(self._work(grant))
        self._require_order(answer.grants, self._look())

    def _work(self, grant: Grant) -> Work:
        """What a call does: a last step has nothing to call if it refers to one that failed."""
        try:
            return self.engine.attempts.work(self.ref, grant)
        except ReferenceUnresolved as error:
            why = str(error)
        _, fatal = self._expected()
        assert runs_last(self._names.node_at(grant.address)), why
        assert self._needs[self._names.of(grant.address)] & fatal.keys(), why
        return self.engine.attempts.bare_work(self.ref, grant)

    def _require_order(self, grants: tuple[Grant, ...], look: Look) -> None:
        """Steps begin after what they need, beside all others, and as many as their limit says."""
        for grant in grants:
            is_last = runs_last(self._names.node_at(grant.address))
            if is_last and (look.status != "active" or not look.is_open):
                continue
            missing = self._needs[self._names.of(grant.address)] - look.done
            assert not missing, f"{grant.address} began before {missing}"
        if look.is_open:
            ready = {name for name, needs in self._needs.items() if needs <= look.done}
            idle = ready - look.begun
            assert not idle, f"{idle} do not run beside the others"
        for name, most in self._limits.items():
            assert look.live[name] <= most, f"more than {most} items of {name} at once"

    def _settle(self, work: Work) -> str:
        """Report the end of a call; returns the engine's answer."""
        attempts, address = self.engine.attempts, work.grant.address
        outcome = self._outcome(work)
        take = [f"{work.grant.nonce}+"] if self._rng.random() < 0.5 else []
        fails = outcome.word == "failed"
        is_open = not fails or work.step.critical or self._look().is_open
        answer = attempts.settle(work, outcome, take=take, worker="w")
        if fails and answer.word in ("settled", "again"):
            self._failures[address] += 1
            self.seen["retry" if answer.word == "again" else "failure"] += 1
            self.seen["timeout"] += "timeout" in outcome.text
        if fails and answer.word == "settled" and not is_open:
            self._fail_for_good(work, outcome)
        if self._rng.random() < 0.1:  # the reply was lost
            again = attempts.settle(work, outcome, take=take, worker="w")
            assert again.word in ("repeated", "superseded")
        self.engine.transitions.dispatch(self.ref, answer)
        self._take(answer)
        return answer.word

    def _fail_for_good(self, work: Work, outcome: Outcome) -> None:
        """A session that is ending retries nothing; a non-critical step has failed then.

        One that refers to the failed step runs again with that.
        """
        if work.inputs and work.step.for_each is None and not work.step.quick:
            self._tools.ruin(str(work.step.label), outcome.text)

    def _outcome(self, work: Work) -> Outcome:
        if is_skipped(work):
            return skipped_outcome(work)
        if not work.inputs:
            return failed("a reference has no value", retryable=False)
        arguments = work.inputs["arguments"]
        assert isinstance(arguments, dict)
        if work.step.quick:
            return STEPS[str(work.inputs["tool"])](arguments)
        assert work.inputs["tool"] == self._tool
        address = work.grant.address
        number = int(address.partition("#")[2] or 1)
        name, failures = str(work.step.label), self._failures[address]
        error, value = self._tools.attempt(name, number, failures, arguments)
        if error:
            return _failed(error)
        outcome = Outcome(word="succeeded", value=value)
        if work.inputs.get("expect") and expect_success("x", outcome).word == "failed":
            return failed(DECLINED)
        return outcome

    # What users do

    def _skip_pending(self) -> None:
        """Skip a step that has not begun, a list before others: a skip concerns its items, too."""
        look = self._look()
        waiting = sorted(self._needs.keys() - look.begun)
        if waiting and look.status == "active":
            lists = [name for name in waiting if self._names.nodes[name].for_each is not None]
            name = self._rng.choice(lists or waiting)
            self.engine.skips.skip(self.id, self._names.nodes[name].id)
            self._skipped.add(name)
            self.seen["skip of a step to come"] += 1

    def _resume(self) -> None:
        """Go on after a stop."""
        self._go_on("stop")

    def _mend(self) -> None:
        """Skip or mend the step that ended the session, and go on."""
        view = self.engine.queries.result(self.id)
        assert view.reason is not None
        values, fatal = self._expected()
        at = str(view.reason.at)
        name = self._names.of(at)
        assert name in fatal, f"{at} ended the session"
        wrong = {n for n in self._look().done if view.results.get(n) != values.get(n)}
        assert not wrong, f"the results so far are wrong: {wrong}"
        self.seen["critical failure"] += 1
        if self._rng.random() < 0.4:
            self._skipped.add(name)
            self._expect_again(set(), lambda: self.engine.skips.skip(self.id, _whole(at)))
            self.seen["skip of a failed step"] += 1
            return
        self._tools.mend(name)
        self._go_on("failure")

    def _go_on(self, after: str) -> None:
        """Resume, or run a step or what comes after one again; all else stays as it is."""
        draw, done = self._rng.random(), self._look().done
        if draw >= 0.5 or not done or done == self._needs.keys():
            self._expect_again(set(), lambda: self.engine.control.apply(self.id, "resume"))
            self.seen[f"resume after a {after}"] += 1
            return
        is_rare = self._rng.random() < 0.5
        name = self._rng.choice(sorted((is_rare and self._skipped & done) or done))
        point, again = self._names.nodes[name].id, self._dependents({name})
        if draw < 0.25:
            self._expect_again(again, lambda: self.engine.step_verbs.retry(self.id, point))
            self.seen["retry of a step"] += 1
            return
        apply = self.engine.control.apply
        self._expect_again(again - {name}, lambda: apply(self.id, "resume", after=point))
        self.seen["resume after a step"] += 1

    def _expect_again(self, again: set[str], act: Callable[[], object]) -> None:
        """Exactly these steps of those that are done run again; none is skipped then."""
        before = self._look()
        try:
            act()
        except (ControlRefused, PositionRefused) as error:
            raise AssertionError(str(error)) from None
        after = self._look()
        anew = {name for name in before.done if after.runs[name] != before.runs[name]}
        assert anew == again & before.done, f"{anew} run again, not {again & before.done}"
        kept = before.done - again
        assert kept <= after.done, f"{kept - after.done} are no longer done"
        self._skipped -= again & before.done
        self._copied -= again

    def _dependents(self, names: set[str]) -> set[str]:
        """These steps, and all that come after them."""
        found = set(names)
        for step in self._steps:
            if step["needs"] & found:
                found.add(step["name"])
        return found

    def _fork(self) -> bool:
        """Go on with a fork of the session, after a step that others follow, if it has one."""
        changes = self._changes()
        inputs = {**self._inputs, **changes.inputs}
        changed = [["inputs", key] for key in inputs if inputs[key] != self._inputs[key]]
        using = {s["name"] for s in self._steps if any(r in changed for r in references(s))}
        followed = [name for name in sorted(self._needs) if len(self._dependents({name})) > 1]
        if not followed:
            return False
        name = self._rng.choice(followed)
        again = self._dependents({name}) - {name} | self._dependents(using)
        wish = Wish(self._names.nodes[name].id, changes)
        self._expect_again(again, lambda: self._go_to_fork(wish))
        self._inputs = inputs
        self._tool = next(iter(changes.tools.values()), self._tool)
        self._copied = self._needs.keys() - again
        self.seen["fork"] += 1
        self.seen["fork with another input"] += bool(changed)
        self.seen["fork with another tool"] += bool(changes.tools)
        return True

    def _go_to_fork(self, wish: Wish) -> None:
        self.world.hints.clear()
        self._go_to(self.engine.forks.fork(self.id, wish).session)

    def _changes(self) -> Changes:
        """What is different in a fork."""
        number = self._rng.randrange(100)
        match self._rng.randrange(4):
            case 0:
                return Changes(inputs={"topic": f"topic {number}"})
            case 1:
                return Changes(inputs={"urls": ["v", *map(str, range(number % 4))]})
            case 2:
                return Changes(tools={self._tool: f"tools:number{number}"})
            case _:
                return Changes()

    # What comes of it

    def _expected(self) -> tuple[dict[str, object], dict[str, object]]:
        """The results so far, as the reference says, and the critical steps that fail."""
        values, fatal = interpret(self._steps, self._inputs, self._tools.call, self._skipped)
        del values["inputs"]
        return {name: one for name, one in values.items() if one is not None}, fatal

    def _compare(self) -> None:
        results, fatal = self._expected()
        assert not fatal
        view = self.engine.queries.result(self.id)
        wrong = {
            n: (view.results.get(n), results.get(n))
            for n in self._needs
            if view.results.get(n) != results.get(n)
        }
        assert not wrong, wrong
        for step in self._steps:
            name = step["name"]
            value = results.get(name)
            has_failed = any(isinstance(one, Failed) for one in _calls(value))
            if has_failed and name not in self._copied:  # a fork warns of what it ran
                assert any(text.startswith(f"{name} ") for text in view.warnings), name
            self._count(step, value, has_failed=has_failed)
        settled = Counter(at for at, _ in self.world.told(self.ref, "step.settled"))
        assert set(settled.values()) <= {1}, settled

    def _count(self, step: dict[str, object], value: object, *, has_failed: bool) -> None:
        """Count what has become of a step."""
        seen, is_skipped = self.seen, value is None or value == []
        seen["failure of a step that is not critical"] += has_failed
        seen["list with a limit"] += "at_once" in step and len(_calls(value)) > 1
        if step["name"] not in self._skipped:
            seen["skip by a condition"] += is_skipped and step["when"] is not None
            seen["skip by a join"] += is_skipped and step["join"] != "ended"
            seen["skip of an item"] += isinstance(value, list) and None in value


def _calls(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _whole(address: str) -> str:
    """The step of an item, or of the making of a list."""
    return address.partition("#")[0].partition("~")[0]


def _failed(name: str) -> Outcome:
    found = failed(name)
    if name != "timeout":
        return found.model_copy(update={"errors": (name,)})
    reason = Reason(code=ReasonCode.TIMEOUT, text=name)
    return found.model_copy(update={"reason": reason})
