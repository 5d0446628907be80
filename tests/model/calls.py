"""Makes one call on the engine and on its model, and compares the two replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.core.outcomes import Thread
from app.core.records import Reply
from tests.engine.driving import LEASE_MS
from tests.model.comparison import Call, Comparison
from tests.model.rules.tree import Back


class Calls(Comparison):
    """The calls of a session, each made on both sides."""

    def call(self, verb: str, **arguments: Any) -> Reply:
        """The same call on either side; the words must be the same, and all that can be seen."""
        self.calls.append(Call(verb, arguments))
        answer = self._ask(verb, arguments)
        word = self._foretell(verb, arguments, answer)
        assert answer.word == word, f"{verb} {arguments}: {answer.word} ({answer.why}), not {word}"
        self.check()
        return answer

    def _ask(self, verb: str, arguments: dict[str, Any]) -> Reply:
        drive = self.drive
        match verb:
            case "claim":
                answer = drive.claim(arguments["address"], nonce=arguments["nonce"])
            case "control":
                more = {k: v for k, v in arguments.items() if k != "steer"}
                answer = drive.control(arguments["steer"], **more)
            case "poke":
                answer = drive.poke(arguments["address"])
            case _:
                text = json.dumps({"word": arguments.get("word"), **_left_in(arguments)})
                outcome = text if verb in ("settle", "answer") else ""
                given = {k: v for k, v in arguments.items() if v is not None and k != "said"}
                said = [json.dumps({"text": text}) for text in arguments.get("said", ())]
                answer = drive.run(verb, given, outcome=outcome, said=said)
        if verb == "park" and answer.word == "parked":
            self.fences.append((arguments["address"], int(answer.fence or 0)))
        known = {(g.address, g.fence) for g in self.grants}
        self.grants += [g for g in answer.grants if (g.address, g.fence) not in known]
        return answer

    def _foretell(self, verb: str, arguments: dict[str, Any], answer: Reply) -> str:
        model = self.model
        model.released.clear()
        unknown = ("take", "worker", "child_base", "ledger", "refused_by")
        given = {k: v for k, v in arguments.items() if k not in unknown}
        match verb:
            case "claim":
                return self._foretell_claim(given["address"], given["nonce"], answer)
            case "beat":
                return model.beat(**given)
            case "release" | "expire":
                given.pop("lease_ms", None)
                return str(getattr(model, verb)(**given))
            case "park":
                given.pop("lease_ms")
                given["until"], given["seen"] = given.pop("until_ms"), given.get("seen") is not None
                return model.park(**{k: v for k, v in given.items() if k != "child"})
            case "answer":
                return model.answer(given["address"], given["fence"], given["word"])
            case "poke" | "control":
                return self._foretell_steering(verb, given)
            case _:
                given.pop("lease_ms")
                word = model.settle(**given)
                self._compare_next(word, arguments, answer)
                return word

    def _foretell_steering(self, verb: str, given: dict[str, Any]) -> str:
        if verb == "poke":
            return self.model.poke(given["child"])
        by = (given["by"], given["fence"]) if "by" in given else None
        return self.model.control(
            given["steer"], given["nonce"], by=by, allowance=given.get("max_iterations"),
            budget=given.get("budget"), back=_back(given), adopts=given.get("adopts"),
        )  # fmt: skip

    def _foretell_claim(self, address: str, nonce: str, answer: Reply) -> str:
        """A conversation has one attempt at a time, which continues after the last outcome."""
        if answer.why == "lock":
            assert self.model.talking(self.model.steps[address]) or self._in_line(address)
            return "refused"
        word = self.model.claim(address, nonce, LEASE_MS)
        for grant in answer.grants:
            talk = self.model.steps[grant.address].node.conversation or ""
            kept = self.model.threads.get(talk)
            assert grant.thread == (kept and Thread.model_validate_json(kept)), grant.address
            turn = self.model.steps[grant.address].block.turn
            assert (grant.given is not None) == self.model.steps[grant.address].given
            assert grant.recheck == (turn.recheck or 0), grant.address
        return word

    def _compare_next(self, word: str, arguments: dict[str, Any], answer: Reply) -> None:
        """Quick steps that were released went to the settler, as many as he would take."""
        step = self.model.steps.get(arguments["address"])
        granted = {g.address: (g.fence, g.nonce) for g in answer.grants}
        if step is None or word == "superseded":
            assert not granted
        elif word == "repeated":
            stands = {
                a: (fence, nonce)
                for a, (fence, nonce) in step.granted.items()
                if self.model.steps[a].state == "running"
                and (self.model.steps[a].fence, self.model.steps[a].nonce) == (fence, nonce)
            }
            assert granted == stands
        else:
            quick = {
                s.address for s in self.model.released
                if s is not step and s.state == "ready" and self._quick(s)
            } if self.model.status == "active" else set()  # fmt: skip
            for address in set(granted) - quick:  # from the line for a slot of the window
                other = self.model.steps[address]
                assert other is not step
                assert other.state == "ready"
                assert self._quick(other)
                assert (other.due or 0) <= self.bench.clock.now
                assert self._queue(other) == self._queue(step)
                assert address not in self.hinted_before
            assert len(granted) >= min(len(quick), len(arguments["take"]))
            assert len(granted) <= len(arguments["take"])
            for address, (_, nonce) in granted.items():
                self.model.grant(self.model.steps[address], nonce, LEASE_MS)
            step.granted = granted

    def _in_line(self, address: str) -> bool:
        """Somebody else waits for the same conversation, and was called before."""
        talk = self.model.steps[address].node.conversation
        others = [s for s in self.model.steps.values() if s.node.conversation == talk]
        return any(s.address != address and s.state == "ready" for s in others)


def _back(given: Mapping[str, Any]) -> Back | None:
    if given.get("levels") is None:
        return None
    anew = frozenset(join["name"] for join in given["again"] if join["name"])
    return Back(anew, given["levels"], given["threads"])


def _left_in(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an outcome about its conversation."""
    thread = arguments.get("thread")
    if thread is None or arguments.get("word") != "succeeded":
        return {}
    kept = thread.get("kept") or Thread(conversation="a|x").model_dump_json()
    return {"thread": json.loads(kept)}
