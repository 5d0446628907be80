"""Flow documents for the chaos runs, drawn from a seed, each with the end that it must come to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Literal

from tests.chaos.ends import End

#: Builds a body's command line, from its kind and arguments.
Command = Callable[..., str]
Step = dict[str, Any]

#: The agent of the chaos runs, and the question that it answers by the iteration it is asked in.
AGENT = "talker"
_QUESTION = "Is this iteration {at} or later?"


class Flows:
    """Draws flows."""

    def __init__(self, rng: Random, command: Command, *, longest_s: float) -> None:
        self._rng = rng
        self._command = command
        self._longest_s = longest_s

    def nested(self) -> tuple[End, Step]:
        """Loops in each other with breaks and continues, of agents and of scripts."""
        rng = self._rng
        outer, inner, skips = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
        body = [
            self._llm("think"),
            self._loop("inner", self._llm("ask"), self._break("leave", inner)),
            *([{"type": "reset", **self._who()}] if rng.random() < 0.3 else []),
            # The first iterations pass over the rest, the break among it.
            self._script("continue", "again", skips, on="no"),
            self._llm("mend", "${steps.think}"),
            self._break("done", outer),
        ]
        turns = max(outer, skips)
        steps = [self._llm("write"), *self._as_loop("outer", body), self._llm("last")]
        return End(iterations=turns * inner + turns), self._flow(steps)

    def mixed(self) -> tuple[End, Step]:
        """People, timers, scripts that choose, commands and checks, in one conversation or two."""
        rng = self._rng
        human: Step = {"type": "human", "label": "person", "question": "go on?"}
        if rng.random() < 0.6:
            human |= self._who()
        choice = self._script("if", "which", 1 if rng.random() < 0.5 else 2)
        choice |= {"then": [self._llm("yes")], "else": [self._llm("no"), self._llm("no 2")]}
        some: list[Step] = [
            human,
            {"type": "wait", "label": "pause", "seconds": rng.choice((0.5, 2, 4))},
            choice,
            {"type": "command", "label": "brief", "commandName": "brief", **self._who()},
            {"type": "check", "label": "good", "checker": {"command": self._check(1)}},
            self._loop("again", self._llm("ask"), self._break("leave", 2)),
        ]
        chosen = rng.sample(some, rng.randint(2, len(some)))
        steps = [self._llm("write"), *chosen, self._llm("last")]
        brief = [self._message("The first part."), self._message("The second part.")]
        end = End(iterations=2 if some[-1] in chosen else 0)
        return end, self._flow(steps, commands={"brief": brief})

    def fails(self) -> tuple[End, Step]:
        """A loop that reaches its ceiling, or a check that says no."""
        most = self._rng.randint(1, 3)
        if self._rng.random() < 0.5:
            loop = self._loop("never", self._llm("ask"), self._break("leave", 9), most=most)
            return End("failed", "max_iterations", most), self._flow([self._llm("write"), loop])
        check = {"type": "check", "label": "good", "checker": {"command": self._check(9)}}
        return End("failed", "failed_step", 0), self._flow([self._llm("write"), check])

    def subflows(self) -> tuple[End, Step]:
        """Sessions below it, side by side, one of which asks or fails."""
        rng, flows = self._rng, {}
        for name in rng.sample(("left", "right", "third"), rng.randint(1, 3)):
            _, document = rng.choice((self.mixed, self.nested, self.fails))()
            flows[name] = {"steps": document["steps"]}
        steps = [
            self._llm("write"),
            {"type": "subflow", "label": "beside", "flowNames": list(flows)},
            self._llm("last"),
        ]
        brief = [self._message("The only part.")]
        return End(iterations=0), self._flow(steps, flows=flows, commands={"brief": brief})

    def budgeted(self) -> tuple[End, Step]:
        """A loop that nothing but the budget ends."""
        which = self._rng.choice(("iterations", "steps", "cost_usd", "tokens", "wall_s"))
        few = self._rng.randint(2, 4)
        loop = self._loop("on", self._llm("ask"), self._break("leave", 900), most=1000)
        limit = {"cost_usd": few * 0.01, "tokens": few * 8, "wall_s": few * 2.0}.get(which, few)
        document = self._flow([self._llm("write"), loop], budget={which: limit})
        return End("failed", "budget"), document

    def raised(self) -> tuple[End, Step]:
        """The same, but with more of it the session can end."""
        turns = self._rng.randint(2, 4)
        loop = self._loop("on", self._llm("ask"), self._break("leave", turns + 1))
        which = self._rng.choice(("iterations", "steps"))
        budget = {which: turns if which == "iterations" else 2 * turns}
        return End(), self._flow([self._llm("write"), loop, self._llm("last")], budget=budget)

    # Parts

    def _flow(self, steps: list[Step], **more: Any) -> Step:
        return {"kind": "flow", "name": "by-chaos", "steps": steps, **more}

    def _who(self) -> Step:
        return {"agentType": AGENT, "identifier": self._rng.choice(("main", "main", "other"))}

    def _seconds(self) -> float:
        share = self._rng.choice((0.01, 0.05, 0.1, 0.25, 0.5)) * self._rng.uniform(0.5, 1)
        return round(max(0.05, share * self._longest_s), 2)

    def _message(self, *lines: str) -> Step:
        told = f"Take {self._seconds()} s for it."
        if self._rng.random() < 0.1:
            told += " One stumbles at first."
        return {"role": "user", "content": [*lines, told]}

    def _llm(self, label: str, *lines: str) -> Step:
        messages = [self._message(f"This is {label}.", *lines)]
        return {"type": "llm", "label": label, "messages": messages, **self._who()}

    def _check(self, at: int) -> str:
        return self._command("check", round(self._seconds() / 2, 2), f"*:{at}")

    def _break(self, label: str, at: int) -> Step:
        """Breaks in iteration `at` of whatever run it stands in."""
        if self._rng.random() < 0.5:
            return self._script("break", label, at, on=self._rng.choice(("yes", "no")))
        question = f"{_QUESTION.format(at=at)} Take {self._seconds() / 2:.2f} s for it."
        return {"type": "break", "label": label, "question": question, "breakOn": "yes",
                **self._who()}  # fmt: skip

    def _script(
        self, type_: Literal["break", "continue", "if"], label: str, at: int, *, on: str = "yes"
    ) -> Step:
        """One that says yes from iteration `at` on; a break turns round what it is asked."""
        wanted = {"break": {"breakOn": on}, "continue": {"continueOn": on}}.get(type_, {})
        habits = ["turned"] if type_ == "break" and on == "no" else []
        command = self._command(on, round(self._seconds() / 2, 2), f"*:{at}", *habits)
        return {"type": type_, "label": label, "command": command, **wanted}

    def _loop(self, label: str, *steps: Step, most: int = 20) -> Step:
        return {"type": "startLoop", "label": label, "steps": list(steps), "maxIterations": most}

    def _as_loop(self, label: str, steps: list[Step]) -> list[Step]:
        """Nested, or flat."""
        if self._rng.random() < 0.5:
            return [self._loop(label, *steps)]
        begun = {"type": "startLoop", "label": label, "maxIterations": 20}
        return [begun, *steps, {"type": "endLoop"}]
