"""Sessions whose steps one worker makes in the process of the test, with real folders and git."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from pydantic import TypeAdapter

from app.sessions.fork import Wish
from leadhand.flows.documents import AnyDocument
from tests.engine.world import World
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook

DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
#: Adds one file in each turn, and a line to another one.
DOER = "n=$(ls | grep -c '^turn'); touch turn$n; echo $n >> log; rm -f two.txt; echo ok"
ACCEPTS_THREE = "test -e turn2"


def copy_bytecode(made: Path, folder: Path) -> None:
    """Links all of one folder of bytecode from another, which only its user may enter."""
    folder.parent.mkdir(mode=0o700, parents=True)
    shutil.copytree(made, folder, copy_function=os.link)


class Sessions:
    """Sessions of one worker, which makes their steps in this process."""

    def __init__(
        self, url: str, folder: Path, copy_max: int = 1_000_000, bytecode: Path | None = None
    ) -> None:
        self.spill = folder / "spill"
        #: What each session finds as the bytecode of its checks, which otherwise compile pytest.
        self.bytecode = bytecode
        self.world = World(
            url, worktrees=folder / "state", spill=str(self.spill), copy_max=copy_max,
            tools=(folder / "tools",),
        )  # fmt: skip
        self.world.now = time.time_ns() // 1_000_000  # the time of files and attempts
        self.engine = self.world.engine
        self.attempts = Attempts(
            self.engine,
            worker="w",
            agents=lambda: AgentBook.load([folder / "agents.toml"]),
            heart=Heartbeats(self.engine),
        )

    def submit_document(self, given: object, *, until: str = "") -> str:
        session = self.engine.submit.document(DOCUMENT.validate_python(given), free=True).session
        if self.bytecode is not None:
            copy_bytecode(self.bytecode, self.spill / session / "pycache")
        return self.carry_out(session, until=until)

    def submit(self, cwd: Path, **more: object) -> str:
        given = {
            "kind": "loop", "task": "t", "cwd": str(cwd), "doer": {"command": DOER},
            "checkers": [ACCEPTS_THREE], "max_iterations": 4, **more,
        }  # fmt: skip
        return self.submit_document(given)

    def fork(
        self, session: str, after: str | None, *, last: str = "workspace", **more: bool
    ) -> str:
        """Fork a session and carry the fork out; the step `last` waits while there are others."""
        self.world.hints.clear()
        fork = self.engine.forks.fork(session, Wish(after, **more), free=True).session  # type: ignore[arg-type]
        return self.carry_out(fork, last=last)

    def carry_out(self, session: str, *, last: str = "", until: str = "") -> str:
        """Carry out all steps; `last` waits while there are others, and at `until` it ends."""
        while self.world.hints and not (until and self.world.hints[0][1] == until):
            self.world.now = max(self.world.now + 1, time.time_ns() // 1_000_000)
            self.world.hints.sort(key=lambda hint: hint[1] == last)
            ref, address = self.world.hints.pop(0)
            self.attempts.publish(ref, self.attempts(ref, address) or ())
        return session

    def warnings(self, session: str) -> list[str]:
        return self.engine.queries.session(session).warnings

    def status(self, session: str) -> str:
        return str(self.engine.queries.session(session).status)

    def reason(self, session: str) -> str:
        return str(self.engine.queries.session(session).reason)

    def folder(self, session: str) -> Path:
        return Path(str(self.engine.queries.session(session).cwd))
