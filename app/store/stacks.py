"""Reads of stacks and of their workflow sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from app.store.errors import StorePart


class StackReads(StorePart):
    """Each read sees a workflow session as it was at one moment."""

    def workflows(self, workflows: Sequence[str]) -> list[dict[str, str]]:
        """Read the records of workflow sessions, each empty if there is none."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for workflow in workflows:
                pipe.hgetall(self._keys.named("workflow", workflow))
            return cast("list[dict[str, str]]", pipe.execute())

    def members(self, stack: str) -> list[tuple[float, str]]:
        """Read all workflow sessions of a stack, newest first: start in ms, and ``order<id``."""
        key = self._keys.named("stack-all", stack)
        with self._away():
            found = self._redis.zrevrange(key, 0, -1, withscores=True)
        return [(float(row[1]), str(row[0])) for row in cast("list[list[str]]", found)]

    def stacks(self) -> list[str]:
        """Read the names of all stacks, the last changed first; some may have expired."""
        with self._away():
            found = self._redis.zrevrange(self._keys.everywhere("stacks"), 0, -1)
        return cast("list[str]", found)

    def heads(self, stacks: Sequence[str]) -> list[tuple[dict[str, str], int, str | None]]:
        """Read the record, the depth and the id of the top workflow session of each stack."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            for stack in stacks:
                pipe.hgetall(self._keys.named("stack", stack))
                pipe.llen(self._keys.named("stack-line", stack))
                pipe.lindex(self._keys.named("stack-line", stack), -1)
            rows = pipe.execute()
        return [(rows[at], rows[at + 1], rows[at + 2]) for at in range(0, len(rows), 3)]
