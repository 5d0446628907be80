"""Runs one random graph on the real scripts, under a seeded schedule of faults."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome
from app.domain.program import Step
from app.domain.reasons import Reason, ReasonCode
from app.domain.records import Grant, Reply
from app.errors import PositionRefused, ReferenceUnresolved
from app.operations.attempts import Work
from app.operations.local_steps.skipping import is_skipped, skipped_outcome
from app.operations.step_verbs.documents import Changes
from app.operations.step_verbs.fork import Wish
from leadhand.graphs.documents import GraphDocument
from tests.engine.driving import LEASE_MS, Bench
from tests.engine.graphs.graph_world import failed
from tests.engine.graphs.reference import interpret, needs_of, returned
from tests.engine.world import World
from workers.tools.builtin import STEPS
from workers.tools.tool import expect_success

#: A step that is lost more often fails for good.
LOST_AT_MOST = 4
ROUNDS = 3000
#: How often a step is claimed, settled, lost, settled too late; a stop; a lost message.
_WEIGHTS = {"claim": 45, "settle": 35, "die": 4, "late": 3, "stop": 3, "drop": 3}

Graph = dict[str, Any]
Acts = dict[str, Any]


class Schedule:
    """Claims, settles, loses, stops and resumes at random, until the session is completed."""

    #: How many forks follow, each of the one before.
    forks = 0

    def __init__(self, bench: Bench, graph: Graph, acts: Acts, seed: int) -> None:
        self._rng = Random(f"schedule {seed}")
        self._graph, self._acts = graph, acts
        self.world = World.of(bench)
        self.engine = self.world.engine
        document = GraphDocument.model_validate(graph)
        self.id = self.engine.submit.document(document).session
        self.ref = SessionRef(self.id, self.id)
        program = self.engine.registry.program(self.engine.registry.facts(self.ref).program)
        self._program = program
        nodes = [node for node in program.body if isinstance(node, Step) and not node.quick]
        self._nodes = {str(node.label): node for node in nodes}
        self._needs = {step["name"]: needs_of(step) for step in graph["steps"]}
        self._limits = {name: node.at_once for name, node in self._nodes.items() if node.at_once}
        self._held: list[Grant] = []
        self._old: list[Grant] = []
        #: The tool of all steps that run.
        self._tool = "echo"
        #: The steps that a fork has from its origin.
        self._copied = set[str]()
        self._failures: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    @property
    def status(self) -> str:
        return self.engine.store.values(self.ref, "session", ["status"])["status"]

    def run(self) -> None:
        """Drive the session to its end, and compare it with the reference."""
        for _ in range(ROUNDS):
            status = self.status
            if status == "completed":
                self._compare()
                self.forks -= 1
                if self.forks < 0 or not self._fork():
                    return
                continue
            if status == "failed" and not self._held:
                self._mend()
            elif status == "stopped":
                self._resume()
            self._round(status)
        raise AssertionError(f"it is {self.status} after {ROUNDS} rounds")

    def _round(self, status: str) -> None:
        (draw,) = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        hints, held = self.world.hints, self._held
        if draw == "late" and self._old:
            self._settle(self._old.pop())
        elif draw == "stop" and status == "active":
            self.engine.control.apply(self.id, "stop")
        elif draw in ("claim", "drop") and hints:
            self._claim() if draw == "claim" else hints.pop(self._rng.randrange(len(hints)))
        elif draw in ("settle", "die") and held:
            grant = self._rng.choice(held)
            self._finish(grant) if draw == "settle" else self._lose(grant)
        elif not hints:
            self._wait()
        if self._rng.random() < 0.2 and self.status == "active":
            self._require_parallel()

    def _resume(self) -> None:
        """Go on after a stop."""
        self.engine.control.apply(self.id, "resume")

    def _mend(self) -> None:
        """Mend the step that ended the session, and resume."""
        reason = self.engine.queries.result(self.id).reason
        assert reason is not None
        at = str(reason.at)
        name = str(self._program.step(at).label)
        _, fatal = interpret(self._graph, self._acts)
        assert name in fatal, f"{at} ended the session"
        if self._skips(at):
            self._acts = {**self._acts, name: [{**self._acts[name][0], "skip": True}]}
            self.engine.skips.skip(self.id, at.partition("~")[0])
            return
        good = {"success": True} if "success" in self._acts[name][0]["value"] else {}
        acts = [{"errors": [], "value": act["value"] | good} for act in self._acts[name]]
        self._acts = {**self._acts, name: acts}
        self._run_again(at)

    def _run_again(self, at: str) -> None:
        """Run the step that ended the session again."""
        del at
        self.engine.control.apply(self.id, "resume")

    def _skips(self, at: str) -> bool:
        """Whether a step that ended the session is skipped; it is mended otherwise."""
        del at
        return False

    def _fork(self) -> bool:
        """Go on with a fork of the session, after a step that others follow, if it has one."""
        self.world.hints.clear()
        self._held, self._old = [], []
        self._failures, self._lost = Counter(), Counter()
        points = [node.id for node in self._nodes.values()]
        for after in self._rng.sample(points, len(points)):
            with suppress(PositionRefused):
                changes = self._changes()
                self.id = self.engine.forks.fork(self.id, Wish(after, changes)).session
                self.ref = SessionRef(self.id, self.id)
                self._graph = {**self._graph, "inputs": self._graph["inputs"] | changes.inputs}
                self._tool = next(iter(changes.tools.values()), self._tool)
                self._forget_skips()
                return True
        return False

    def _changes(self) -> Changes:
        """What is different in a fork."""
        return Changes()

    def _forget_skips(self) -> None:
        """A fork runs what comes after its point again, also what was skipped in its origin."""
        self._copied = self._ended()
        for name, acts in self._acts.items():
            if name not in self._copied:
                kept = [{key: one[key] for key in one if key != "skip"} for one in acts]
                self._acts = {**self._acts, name: kept}

    def _wait(self) -> None:
        ms = self._rng.choice((1_100, 3_000, LEASE_MS + 2_000))
        for grant in list(self._held) if ms > LEASE_MS else ():
            self._lose(grant)
        self.world.later(ms)

    def _lose(self, grant: Grant) -> None:
        """Its worker dies; it may still report when another has the step."""
        self._held.remove(grant)
        if self._lost[grant.address] >= LOST_AT_MOST:
            return self._settle(grant)
        self._lost[grant.address] += 1
        self._old.append(grant)
        return None

    def _finish(self, grant: Grant) -> None:
        self._held.remove(grant)
        self._settle(grant)

    def _claim(self) -> None:
        ref, address = self._rng.choice(self.world.hints)
        if self._rng.random() < 0.9:  # otherwise the message comes twice
            self.world.hints.remove((ref, address))
        self._take(self.world.claim(ref, address))

    def _take(self, answer: Reply) -> None:
        ended = self._ended() if answer.grants else set()
        for grant in answer.grants:
            missing = self._needs[self._name(grant.address)] - ended
            assert not missing, f"{grant.address} began before {missing}"
            self._held.append(grant)
        if answer.grants and self._limits:
            live = self._live()
            for name, most in self._limits.items():
                assert live[name] <= most, f"more than {most} items of {name} at once"

    def _settle(self, grant: Grant) -> None:
        attempts, address = self.engine.attempts, grant.address
        try:
            work = attempts.work(self.ref, grant)
        except ReferenceUnresolved as error:
            raise AssertionError(str(error)) from None
        outcome = self._outcome(work)
        take = [f"{grant.nonce}+"] if self._rng.random() < 0.5 else []
        is_open = self._is_open()
        answer = attempts.settle(work, outcome, take=take, worker="w")
        if outcome.word == "failed" and answer.word in ("settled", "again"):
            self._failures[address] += 1
        if outcome.word == "failed" and answer.word == "settled" and not is_open:
            self._fail_for_good(work, outcome)
        if self._rng.random() < 0.1:  # the reply was lost
            again = attempts.settle(work, outcome, take=take, worker="w")
            assert again.word in ("repeated", "superseded")
        self.engine.transitions.dispatch(self.ref, answer)
        self._take(answer)

    def _fail_for_good(self, work: Work, outcome: Outcome) -> None:
        """A session that is ending retries nothing; a non-critical step has failed then."""
        name, step = str(work.step.label), work.step
        if not step.critical and step.for_each is None and not step.quick:
            assert outcome.reason is not None
            errors = [outcome.reason.text] * 99
            self._acts = {**self._acts, name: [{**self._acts[name][0], "errors": errors}]}

    def _is_open(self) -> bool:
        return self.engine.store.turns(self.ref, [""])[""].state == "open"

    def _outcome(self, work: Work) -> Outcome:
        if is_skipped(work):
            return skipped_outcome(work)
        arguments = work.inputs["arguments"]
        assert isinstance(arguments, dict)
        if work.step.quick:
            return STEPS[str(work.inputs["tool"])](arguments)
        assert work.inputs["tool"] == self._tool
        address = work.grant.address
        _, _, item = address.partition("#")
        act = self._acts[str(work.step.label)][(int(item) - 1) % 3 if item else 0]
        failures = self._failures[address]
        if failures < len(act["errors"]):
            return _failed(act["errors"][failures])
        value = returned(act, arguments)
        outcome = Outcome(word="succeeded", value=value)
        if work.inputs.get("expect") and expect_success("x", outcome).word == "failed":
            return failed("declined")
        return outcome

    def _name(self, address: str) -> str:
        return str(self._program.step(address).label).removesuffix(" (list)")

    def _live(self) -> Counter[str]:
        live = self.engine.store.members(self.ref, "live")
        return Counter(self._name(at) for at in live if "#" in at)

    def _newest(self) -> dict[str, str]:
        """Where the newest run of each step is, by its name."""
        store, ids = self.engine.store, [node.id for node in self._nodes.values()]
        runs = {id_: int(run) for id_, run in store.values(self.ref, "runs", ids).items()}
        found = {}
        for name, node in self._nodes.items():
            run = runs.get(node.id, 1)
            is_plain = run == 1 and node.for_each is None
            found[name] = node.id if is_plain else f"{node.id}~{run}"
        return found

    def _ended(self) -> set[str]:
        newest = self._newest()
        steps = self.engine.store.steps(self.ref, list(newest.values()))
        turns = self.engine.store.turns(self.ref, list(newest.values()))
        over = {at for at, one in steps.items() if one.state in ("succeeded", "failed", "skipped")}
        over |= {at for at, one in turns.items() if one.state == "closed"}
        return {name for name, at in newest.items() if at in over}

    def _require_parallel(self) -> None:
        """Every step whose needs have ended has begun, whatever else is under way."""
        if not self._is_open():
            return
        newest, ended = self._newest(), self._ended()
        begun = set(self.engine.store.steps(self.ref, list(newest.values())))
        begun |= set(self.engine.store.turns(self.ref, list(newest.values())))
        live = {self._name(at) for at in self.engine.store.members(self.ref, "live")}
        for name, needs in self._needs.items():
            may = needs <= ended
            has = newest[name] in begun or name in live
            assert has or not may, f"{name} does not run beside the others"

    def _compare(self) -> None:
        results, fatal = interpret(self._graph, self._acts)
        assert not fatal
        view = self.engine.queries.result(self.id)
        assert view.results == results
        lenient = {step["name"] for step in self._graph["steps"] if not step["critical"]}
        for name in (lenient & results.keys()) - self._copied:  # a fork warns of what it ran
            value = results[name] if isinstance(results[name], list) else [results[name]]
            if any(isinstance(one, dict) and "error" in one for one in value):
                assert any(text.startswith(f"{name} ") for text in view.warnings), name
        settled = Counter(at for at, _ in self.world.told(self.ref, "step.settled"))
        assert set(settled.values()) <= {1}, settled


class VerbSchedule(Schedule):
    """A schedule in which failed steps are skipped or retried, too, and completed sessions forked.

    A fork may have another input or another tool.
    """

    forks = 2

    def _skips(self, at: str) -> bool:
        is_whole = "#" not in at and self._program.step(at).for_each is None
        return is_whole and self._rng.random() < 0.5

    def _run_again(self, at: str) -> None:
        if self._rng.random() < 0.5:
            return super()._run_again(at)
        self.engine.step_verbs.retry(self.id, at.partition("#")[0])
        return None

    def _changes(self) -> Changes:
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


def _failed(name: str) -> Outcome:
    found = failed(name)
    if name != "timeout":
        return found.model_copy(update={"errors": (name,)})
    reason = Reason(code=ReasonCode.TIMEOUT, text=name)
    return found.model_copy(update={"reason": reason})
