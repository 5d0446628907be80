"""Random walks over the inbox, compared with a plain list of messages after each call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from app.core.program import Program
from app.core.records import Grant
from tests.engine.driving import LEASE_MS, Bench, Drive, loop, program, step

CALLS = 60
FEW, ALL = range(12), range(12, 200)
AGENTS = {"a", "b", "c", "d", "do"}


@dataclass
class Line:
    """A message as the model knows it."""

    text: str
    #: The step that has got it.
    holder: str | None = None
    read_by: str | None = None


@dataclass
class Walk:
    """One session, and what its inbox has to be."""

    drive: Drive
    random: Random
    lines: dict[int, Line] = field(default_factory=dict)
    #: The running attempts, as the last claim granted each, and all that ever were.
    running: dict[str, Grant] = field(default_factory=dict)
    past: list[Grant] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    added: int = 0

    # What the session is asked

    def add(self) -> None:
        self.added += 1
        key = self.random.choice([None, f"k{self.random.randrange(8)}"])
        text = self.keys and key in self.keys and self.lines[self.keys[key]].text
        text = text or f"message {self.added}"
        kind = self.random.choice(["hint", "end"])
        sent = {"kind": kind, "from": "ann", "text": text, "key": key, "digest": text}
        answer = self.drive.run("inbox_add", sent)
        if key in self.keys:
            assert answer.word == "repeated"
            assert answer.messages[0].id == self.keys[key]
        elif self.drive.status in ("completed", "aborted") and kind == "hint":
            assert answer.word == "ended"
        else:
            assert answer.word == "added"
            (message,) = answer.messages
            assert message.id == len(self.lines) + 1
            self.lines[message.id] = Line(text)
            if key is not None:
                self.keys[key] = message.id

    def claim(self) -> None:
        ready = self.drive.ready()
        if not ready:
            return
        address = self.random.choice(ready)
        self._granted(self.drive.claim(address).grants, also_free=True)

    def claim_again(self) -> None:
        """The reply of a claim was lost, and the worker asks again."""
        for address, grant in self.running.items():
            answer = self.drive.claim(address, nonce=grant.nonce)
            if answer.word == "granted":
                self._granted(answer.grants, also_free=False)

    def settle(self) -> None:
        if not self.running:
            return
        address = self.random.choice(sorted(self.running))
        word = self.random.choice(["succeeded", "succeeded", "failed"])
        name = address.rpartition("/")[2]
        verdict = self.random.choice(["retry", "accept"]) if name == "judge" else None
        grant = self.running.pop(address)
        retryable = self.random.random() < 0.7
        word = "succeeded" if name == "judge" else word
        answer = self.drive.settle(
            grant, word, verdict, retryable=retryable, take=["n" + grant.nonce]
        )
        if answer.word == "settled" and word == "succeeded" and self._reads(address):
            for line in self.lines.values():
                if line.holder == address and line.read_by is None:
                    line.read_by = address
        self._granted(answer.grants, also_free=True)

    def settle_late(self) -> None:
        """A worker that was lost, or whose reply was lost, settles what it once had."""
        stale = [g for g in self.past if self.running.get(g.address) is not g]
        if stale:
            grant = self.random.choice(stale)
            current = self.running.get(grant.address)
            if current is None or current.fence != grant.fence:
                answer = self.drive.settle(grant)
                assert answer.word in ("superseded", "repeated")

    def release(self) -> None:
        if self.running:
            address = self.random.choice(sorted(self.running))
            self.drive.release(self.running.pop(address))

    def lose(self) -> None:
        self.drive.bench.tick(LEASE_MS / 1000 + 11)
        self.drive.sweep()
        self.running.clear()

    def take(self) -> None:
        key = self.random.choice([None, f"take {self.random.randrange(10**9)}"])
        free = [id_ for id_, line in self.lines.items() if self._is_free(line, None)]
        answer = self.drive.run("inbox_take", {"by": "hook", "key": key})
        assert [message.id for message in answer.messages] == free
        for id_ in free:
            self.lines[id_].read_by = "hook"
        if key is not None and free:
            again = self.drive.run("inbox_take", {"by": "hook", "key": key})
            assert [message.id for message in again.messages] == free

    def stop_and_resume(self) -> None:
        if self.drive.status == "active":
            self.drive.control("stop")
            for address in sorted(self.running):
                self.drive.release(self.running.pop(address), why="stop")
            self.drive.control("resume")

    # What must hold

    def check(self) -> None:
        kept = self.drive.bench.redis.hgetall(self.drive.key("inbox"))
        messages = {int(id_): json.loads(text) for id_, text in kept.items() if id_.isdigit()}
        found = {id_: (one["text"], one.get("read_by")) for id_, one in messages.items()}
        assert found == {id_: (line.text, line.read_by) for id_, line in self.lines.items()}
        unread = [id_ for id_, line in self.lines.items() if line.read_by is None]
        assert int(self.drive.field("unread") or 0) == len(unread)
        listed = sorted(self.drive.members("unread"))
        assert [int(member[:12]) for member in listed] == unread

    def check_events(self) -> None:
        """Each message is acknowledged once, by what has read it."""
        acknowledged: list[tuple[int, str]] = []
        for _, fields in self.drive.bench.redis.xrange(self.drive.key("events")):
            if fields["t"] == "inbox.read":
                told = json.loads(fields["d"])
                acknowledged += [(id_, told["by"]) for id_ in told["ids"]]
        known = {id_: line.read_by for id_, line in self.lines.items() if line.read_by is not None}
        assert len(acknowledged) == len(known)
        assert dict(acknowledged) == known

    def _granted(self, grants: tuple[Grant, ...], *, also_free: bool) -> None:
        for grant in grants:
            address = grant.address
            if self._reads(address) and also_free:
                for line in self.lines.values():
                    if self._is_free(line, address):
                        line.holder = address
            held = [i for i, x in self.lines.items() if x.holder == address and x.read_by is None]
            expected = held if self._reads(address) else []
            assert [message.id for message in grant.messages] == expected
            self.running[address] = grant
            self.past.append(grant)

    def _is_free(self, line: Line, address: str | None) -> bool:
        if line.read_by is not None:
            return False
        if line.holder is None or line.holder == address:
            return True
        return self.drive.state(line.holder) not in ("ready", "running")

    def _reads(self, address: str) -> bool:
        return address.rpartition("/")[2] in AGENTS


def agents() -> Program:
    """Agents side by side, one after them, and a loop of one."""
    return program(
        step("a", "agent", needs=(), retries=1, critical=False),
        step("b", "agent", needs=(), retries=1, critical=False),
        step("c", "agent", needs=("a",), critical=False),
        step("d", "agent", needs=("b", "c"), retries=1, critical=False),
        loop(
            "green",
            step("do", "agent", retries=2, critical=False),
            step("judge", "judge"),
            turns=6,
            needs=(),
            on_fail="continue",
        ),
        step("last", needs=("green", "d")),
    )


def walk(bench: Bench, seed: int) -> None:
    bench.restart()
    random = Random(seed)
    one = Walk(bench.start(agents()), random)
    calls: list[Any] = [
        one.add, one.add, one.add, one.claim, one.claim, one.claim, one.claim_again, one.settle,
        one.settle, one.settle, one.settle_late, one.release, one.lose, one.take,
        one.stop_and_resume,
    ]  # fmt: skip
    for _ in range(CALLS):
        random.choice(calls)()
        bench.tick(random.choice([0, 0, 1, 4]))
        one.check()
    one.check_events()


def test_inbox_is_as_a_plain_list_after_each_call(bench: Bench):
    for seed in FEW:
        walk(bench, seed)


def test_ended_session_accepts_ends_only(bench: Bench):
    drive = bench.start(program(step("a", "agent")))
    drive.do("a")
    assert drive.status == "completed"
    words = [
        drive.run("inbox_add", {"kind": kind, "from": "ann", "text": "late"}).word
        for kind in ("hint", "notice", "report", "proposal", "end")
    ]
    assert words == ["ended"] * 4 + ["added"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_inbox_is_as_a_plain_list_after_each_call_of_many_walks(bench: Bench):
    for seed in ALL:
        walk(bench, seed)
