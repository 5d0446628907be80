"""Sessions of several kinds, drawn from a seed, each with the end that it must come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from app.core.program import Action, Given, Loop, Node, Program, RetryPolicy, Step
from leadhand.models.documents import LoopDocument
from tests.chaos.ends import End
from tests.chaos.flow_load import Command, Flows
from tests.chaos.graph_load import draw_graph
from tests.chaos.inline_load import draw_inline_calls, draw_inline_checks
from tests.chaos.merge_load import Merges
from tests.chaos.plan_load import Plans

Steer = Literal["stop", "stop twice", "back", "raise", "abort", "exit", "race"]

#: How long a brief step may take: a later check finds it overdue.
BRIEF_S = 12
#: The key of which only so many attempts may begin in a minute.
PACED, PER_MINUTE = "key:paced", 120
#: The bodies change nothing, so the loops do not watch for progress.
_STUBBORN = {"no_progress": 0} if "no_progress" in LoopDocument.model_fields else {}


@dataclass(frozen=True)
class Wanted:
    """One session to be: what it runs, where, and what becomes of it."""

    number: int
    kind: str
    cwd: Path
    place: str
    end: End
    #: Submitted over REST where there is a document, started through the engine otherwise.
    document: dict[str, Any] | None = None
    program: Program | None = None
    steer: Steer | None = None
    #: Seconds from its submit until it is steered.
    steer_after_s: float = 0.0
    #: Whether its folder is a git repository.
    git: bool = False
    #: What its doer starts while it works, as a session below it.
    spawns: dict[str, Any] | None = None


class Load:
    """Draws sessions."""

    def __init__(
        self, rng: Random, command: Command, folder: Path, places: tuple[str, ...],
        *, longest_s: float,
    ) -> None:  # fmt: skip
        self._rng = rng
        self._longest_s = longest_s
        self._command = command
        self._folder = folder
        self._places = places
        self._kinds: list[Callable[[], tuple[End, dict[str, Any] | Program]]] = [
            self._loop, self._loop, self._workflow, self._workflow, self._nested, self._graph,
            self._for_each, self._parked, self._child, self._slow, self._branch, self._spent,
            self._flow, self._flow, self._flow, self._flow, self._brief, self._paced,
            self._spawning, self._plan, self._plan, self._merged, self._tools, self._tools,
            self._inline, self._inline, self._inline_checks,
        ]  # fmt: skip
        self._flows = Flows(rng, command, longest_s=longest_s)
        self._plans = Plans(rng, command, longest_s=longest_s)
        self._merges = Merges(rng, command, longest_s=longest_s)
        #: The kinds of flows that are still to come.
        self._flow_kinds: list[Callable[[], tuple[End, dict[str, Any]]]] = []

    def draw(self, count: int) -> list[Wanted]:
        """So many sessions; every kind comes before one comes again."""
        order: list[int] = []
        while len(order) < count:
            order += self._rng.sample(range(len(self._kinds)), len(self._kinds))
        return [self._one(number, self._kinds[kind]) for number, kind in enumerate(order[:count])]

    def _one(self, number: int, make: Callable[[], tuple[End, dict[str, Any] | Program]]) -> Wanted:
        rng = self._rng
        self._place = rng.choice(self._places)
        self._number = number
        own = f"session {number}" if rng.random() < 0.8 else f"shared {rng.randrange(2)}"
        self._cwd = self._folder / self._place / own
        self._kind = ""
        self._spawns: dict[str, Any] | None = None
        end, made = make()
        is_flow = isinstance(made, dict) and made["kind"] == "flow"
        fields = {"document": made} if isinstance(made, dict) else {"program": made}
        return Wanted(
            number, self._kind or make.__name__.strip("_"), self._cwd, self._place, end,
            steer=self._steer(is_flow=is_flow), steer_after_s=rng.uniform(0, 8),
            git=is_flow or rng.random() < 0.5, spawns=self._spawns, **fields,
        )  # fmt: skip

    def _steer(self, *, is_flow: bool) -> Steer | None:
        """What becomes of it on its way; a flow may be sent back."""
        if self._kind == "flow raised":
            return "raise"
        steers: tuple[Steer, ...] = ("stop", "stop twice", "abort", "exit", "race")
        back: tuple[Steer, ...] = ("back", "back", "back") if is_flow else ()
        return self._rng.choice((*steers, *back)) if self._rng.random() < 0.4 else None

    # Bodies

    def _seconds(self) -> float:
        share = self._rng.choice((0.01, 0.05, 0.1, 0.25, 0.5, 1.0)) * self._rng.uniform(0.5, 1)
        return round(share * self._longest_s, 2)

    def _work(self, kind: str = "work") -> str:
        habits = [habit for habit in ("deaf", "nest") if self._rng.random() < 0.1]
        habits += ["write"] if self._rng.random() < 0.7 else []
        return self._command(kind, self._seconds(), *habits)

    def _check(self, accepts: dict[int, int]) -> str:
        wanted = ",".join(f"{run}:{iteration}" for run, iteration in accepts.items())
        return self._command("check", round(self._seconds() / 2, 2), wanted)

    def _checkers(self, accepts: dict[int, int]) -> list[dict[str, Any]]:
        """Several, the last of which to be content is content then."""
        sooner = {run: self._rng.randint(1, at) for run, at in accepts.items()}
        checks = [accepts, *([sooner] * self._rng.randrange(3))]
        return [
            {"command": self._check(one), "name": f"check{number}"}
            for number, one in enumerate(checks)
        ]

    # Kinds

    def _loop(self) -> tuple[End, dict[str, Any]]:
        at, most = self._rng.randint(1, 4), self._rng.randint(1, 4)
        bad = self._rng.random() < 0.1
        doer = {"command": self._work("fail" if bad else "work")}
        document: dict[str, Any] = {
            "kind": "loop", "task": "work", "doer": doer,
            "checkers": self._checkers({1: at}), "max_iterations": most,
            "cwd": str(self._cwd), "place": self._place, **_STUBBORN,
        }  # fmt: skip
        if self._rng.random() < 0.3:
            document["concurrency_key"] = "scarce"
        if bad:
            return End("failed", "failed_step", 1), document
        if at <= most:
            return End(iterations=at), document
        return End("failed", "max_iterations", most), document

    def _workflow(self) -> tuple[End, dict[str, Any]]:
        phases, end, turns, retries = [], End(), 0, 0
        for number in range(self._rng.randint(2, 3)):
            most = self._rng.randint(1, 3)
            on_fail = self._rng.choice(("stop", "continue", "retry:1", "retry:2"))
            runs = int(on_fail[6:]) + 1 if on_fail.startswith("retry") else 1
            accepts = {run: self._rng.randint(1, most + 1) for run in range(1, runs + 1)}
            phases.append({
                "name": f"p{number}", "task": "work",
                "checkers": self._checkers(accepts),
                "max_iterations": most, "on_fail": on_fail, **_STUBBORN,
            })  # fmt: skip
            if end.status == "failed":
                continue
            tries = _tries(accepts, most)
            turns += sum(min(accepts[run], most) for run in range(1, tries + 1))
            retries += tries - 1
            if accepts[tries] > most and on_fail != "continue":
                end = End("failed", "max_iterations")
        document = {
            "kind": "workflow", "name": "by chaos", "doer": {"command": self._work()},
            "phases": phases, "cwd": str(self._cwd), "place": self._place,
        }  # fmt: skip
        return End(end.status, end.code, turns, retries), document

    def _nested(self) -> tuple[End, Program]:
        outer, inner = self._rng.randint(1, 3), self._rng.randint(1, 3)
        body = Loop(
            id="inner", max_iterations=5, body=(self._do("ask"), self._break("leave", inner))
        )
        whole = Loop(id="outer", max_iterations=5, body=(body, self._break("done", outer)))
        end = End(iterations=outer * inner + outer)
        return end, _program(whole, self._do("after"))

    def _branch(self) -> tuple[End, Program]:
        """What is decided goes on, the other branch is passed over, and both meet again."""
        yes, turns = self._rng.random() < 0.5, self._rng.randint(1, 3)
        command = self._check({1: 1 if yes else 2})
        which = Step(id="which", action=Action.DECIDE, timeout_s=60, inputs={"command": command})
        given = [Given(node="which", verdict=verdict) for verdict in ("accept", "retry")]
        again = Loop(
            id="again", needs=("which",), given=given[0], max_iterations=5,
            body=(self._do("ask"), self._break("leave", turns)),
        )  # fmt: skip
        other = self._do("other").model_copy(update={"needs": ("which",), "given": given[1]})
        after = self._do("after").model_copy(update={"needs": ("again", "other")})
        return End(iterations=turns if yes else 0), _program(which, again, other, after)

    def _graph(self) -> tuple[End, Program]:
        """A random graph of steps; one of them may fail, with or without taking all with it."""
        rng, nodes, end = self._rng, list[Node](), End(iterations=0)
        bad = rng.randrange(12)
        for number in range(rng.randint(4, 8)):
            before = [node.id for node in nodes]
            needs = tuple(rng.sample(before, rng.randint(0, min(3, len(before)))))
            critical = rng.random() < 0.5
            fails = number == bad
            node = self._do(f"n{number}", kind="fail" if fails else "work")
            if not fails and rng.random() < 0.3:
                node = _tool(f"n{number}", quick=rng.random() < 0.5)
            nodes.append(node.model_copy(update={"needs": needs, "critical": critical}))
            if fails and critical:
                end = End("failed", "failed_step", 0)
        return end, _program(*nodes)

    def _for_each(self) -> tuple[End, Program]:
        width = self._rng.choice((0, 1, 3, 8))
        items = _tool("list", items=list(range(width)))
        each = self._do("each").model_copy(update={"for_each": "${list.items}"})
        fixed = _tool("fixed", quick=True).model_copy(update={"for_each": ("a", "b")})
        return End(iterations=0), _program(items, each, fixed, self._do("after"))

    def _parked(self) -> tuple[End, Program]:
        wait = Step(
            id="pause", action=Action.WAIT, inputs={"seconds": self._rng.choice((0.5, 2, 5))}
        )
        ask = Step(id="ask", action=Action.HUMAN, inputs={"question": "go on?"}, timeout_s=3600)
        middle = [wait, ask] if self._rng.random() < 0.7 else [wait]
        return End(iterations=0), _program(self._do("before"), *middle, self._do("after"))

    def _child(self) -> tuple[End, Program]:
        inner, document = self._loop()
        document.pop("place")
        document.pop("concurrency_key", None)
        child = Step(id="child", action=Action.CHILD, inputs={"document": document}, timeout_s=3600)
        end = End(inner.status, "failed_step" if inner.status == "failed" else "done", 0)
        return end, _program(self._do("before"), child, self._do("after"))

    def _slow(self) -> tuple[End, Program]:
        """Its first attempt takes too long, and is tried again; quick steps go on from it."""
        doer: dict[str, Any] = {"command": self._command("slow", 0.1)}
        slow = Step(
            id="slow", action=Action.AGENT, timeout_s=6, inputs={"task": "work", "doer": doer},
            retry=RetryPolicy(retries=6, backoff_s=0.5),
        )  # fmt: skip
        quick = [_tool(f"q{number}", quick=True) for number in range(4)]
        return End(iterations=0), _program(slow, *quick, self._do("after"))

    def _brief(self) -> tuple[End, Program]:
        """Steps that have little time and one try: none of them takes it, so none may time out."""
        inputs: dict[str, Any] = {"task": "work", "doer": {"command": self._command("work", 0.5)}}
        brief = [
            Step(id=f"b{number}", action=Action.AGENT, timeout_s=BRIEF_S, inputs=inputs)
            for number in range(self._rng.randint(4, 8))
        ]
        return End(iterations=0), _program(*brief)

    def _paced(self) -> tuple[End, Program]:
        inputs: dict[str, Any] = {"task": "work", "doer": {"command": self._command("work", 0)}}
        each = Step(
            id="each", action=Action.AGENT, timeout_s=120, inputs=inputs, limits=(PACED,),
            for_each=tuple(range(self._rng.choice((1, 6, 20)))),
        )  # fmt: skip
        return End(iterations=0), _program(each, self._do("after"))

    def _spawning(self) -> tuple[End, Program]:
        """What its doer starts goes on beside it, and ends with it at last."""
        self._spawns = {
            "kind": "loop", "task": "work", "doer": {"command": self._work()},
            "checkers": self._checkers({1: 1}), **_STUBBORN,
        }  # fmt: skip
        return End(iterations=0), _program(
            self._do("before"), self._do("spawns"), self._do("after")
        )

    def _spent(self) -> tuple[End, dict[str, Any]]:
        """A loop that is never accepted, or two, and the limit that ends it."""
        _, document = self._loop()
        few = self._rng.randint(2, 3)
        document |= {
            "checkers": self._checkers({1: 99}), "doer": {"command": self._work()},
            "max_iterations": 50, "budget": {"iterations": few},
        }  # fmt: skip
        return End("failed", "budget", few), document

    def _flow(self) -> tuple[End, dict[str, Any]]:
        """A flow; each kind of them comes before one comes again."""
        if not self._flow_kinds:
            flows = self._flows
            kinds = [flows.nested, flows.mixed, flows.subflows, flows.budgeted, flows.raised,
                     flows.nested, flows.fails]  # fmt: skip
            self._flow_kinds = self._rng.sample(kinds, len(kinds))
        kind = self._flow_kinds.pop()
        self._kind = f"flow {kind.__name__}"
        end, document = kind()
        return end, document | {"cwd": str(self._cwd), "place": self._place}

    def _plan(self) -> tuple[End, dict[str, Any]]:
        """A plan, in a folder that its tasks take in turns, or in none."""
        end, document = self._plans.plan()
        folder = {"cwd": str(self._cwd)} if self._rng.random() < 0.3 else {}
        return end, document | {"place": self._place} | folder

    def _merged(self) -> tuple[End, dict[str, Any]]:
        """A plan whose tasks work in worktrees of a repository, and are merged."""
        end, document = self._merges.plan()
        # No other session works in a user's repository.
        self._cwd = self._folder / self._place / f"repository {self._number}"
        return end, document | {"place": self._place, "cwd": str(self._cwd)}

    def _tools(self) -> tuple[End, dict[str, Any]]:
        """A graph of tools."""
        end, document = draw_graph(self._rng)
        return end, document | {"cwd": str(self._cwd), "place": self._place}

    def _inline(self) -> tuple[End, Program]:
        """Functions that run in the workers' own processes."""
        return draw_inline_calls(self._rng, self._folder / f"marks-{self._number}")

    def _inline_checks(self) -> tuple[End, dict[str, Any]]:
        end, document = draw_inline_checks(self._rng, {"command": self._work()})
        return end, document | {"cwd": str(self._cwd), "place": self._place, **_STUBBORN}

    def _do(self, name: str, *, kind: str = "work") -> Step:
        inputs: dict[str, Any] = {"task": "work", "doer": {"command": self._work(kind)}}
        return Step(id=name, action=Action.AGENT, timeout_s=120, inputs=inputs)

    def _break(self, name: str, at: int) -> Step:
        """Breaks in iteration `at` of whatever run it stands in."""
        command = self._check(dict.fromkeys(range(1, 5), at))
        return Step(id=name, action=Action.BREAK, timeout_s=60, inputs={"command": command})


def _tries(accepts: dict[int, int], most: int) -> int:
    """Which run of a phase is its last: the first that is accepted, or that nobody retries."""
    return next((run for run, at in accepts.items() if at <= most), max(accepts))


def _tool(name: str, *, quick: bool = False, **arguments: Any) -> Step:
    inputs: dict[str, Any] = {"tool": "echo", "arguments": arguments}
    return Step(id=name, action=Action.TOOL, quick=quick, inputs=inputs)


def _program(*body: Node) -> Program:
    return Program(name="by hand", body=body)
