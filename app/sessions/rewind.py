"""What a resume runs again, as arguments of its transition (pure)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pydantic import JsonValue

from app.core import routing
from app.core.program import Program
from app.core.routing import Join
from leadhand.models.verdicts import Reason


class KeptItems(NamedTuple):
    """What the next run of a for_each keeps of an older one: its list, and items by number."""

    run: str
    items: tuple[int, ...]

    def argument(self) -> dict[str, JsonValue]:
        """Convert the kept items to an argument of the Lua function `control`."""
        return {"run": self.run, "items": [*self.items]}


class Level(NamedTuple):
    """One turn that a resume opens."""

    #: The loop's node, the address of the turn that it continues, and that turn's iteration.
    node: str
    run: str
    iteration: int
    max: int
    left: int
    #: The iteration that is a recheck, if it is not after this one.
    recheck: int | None
    #: The nodes that count as done in it, each with the address of its outcome.
    kept: Mapping[str, str]
    joins: tuple[Join, ...]
    #: The for_each nodes that run again, each with the address that holds its width.
    widths: Mapping[str, str]
    #: What the for_each nodes that run again keep.
    keeps: Mapping[str, KeptItems] = MappingProxyType({})

    def argument(self) -> dict[str, JsonValue]:
        """Convert the loop iteration to open to an argument of the Lua function `control`."""
        return {
            "node": self.node,
            "run": self.run,
            "iteration": self.iteration,
            "max": self.max,
            "left": self.left,
            **({"recheck": self.recheck} if self.recheck else {}),
            "kept": {**self.kept},
            "joins": [join.argument() for join in self.joins],
            "widths": {**self.widths},
            "keeps": {name: kept.argument() for name, kept in self.keeps.items()},
        }


class Rewind(NamedTuple):
    """The joins of the outermost block, and the turns to open, outermost first."""

    again: tuple[Join, ...]
    levels: tuple[Level, ...] = ()
    #: The thread at which each conversation continues; None leaves them as they are.
    threads: Mapping[str, str] | None = None
    #: What the outermost for_each nodes that run again keep.
    keeps: Mapping[str, KeptItems] = MappingProxyType({})

    def without_kept_items(self, of: Collection[str] | None = None) -> Rewind:
        """Return the rewind with all items of for_each nodes that run again: those at these paths.

        Without paths, of all of them.
        """
        levels, path = list[Level](), ""
        for level in self.levels:
            path = f"{path}{level.node}/"
            levels.append(level._replace(keeps=_left(level.keeps, of, path)))
        return self._replace(keeps=_left(self.keeps, of), levels=tuple(levels))

    def arguments(self) -> dict[str, JsonValue]:
        """Return the rewind as a dict of named arguments of the Lua function `control`."""
        return {
            "keeps": {name: kept.argument() for name, kept in self.keeps.items()},
            "again": [join.argument() for join in self.again],
            "levels": [level.argument() for level in self.levels],
            "threads": None if self.threads is None else {**self.threads},
        }


def _left(
    keeps: Mapping[str, KeptItems], of: Collection[str] | None, block: str = ""
) -> dict[str, KeptItems]:
    if of is None:
        return {}
    return {name: kept for name, kept in keeps.items() if f"{block}{name}" not in of}


class Adoption(NamedTuple):
    """The new program that a session adopts when it resumes."""

    program: Program
    signature: str
    #: The flow file it was compiled from (JSON of a Source).
    source: str
    #: The session starts from its first step.
    afresh: bool

    def argument(self) -> dict[str, JsonValue]:
        """Convert the adopted program to an argument of the Lua function `control`."""
        routes = routing.routes(self.program)
        return {
            "program": self.program.hash,
            "document": self.program.model_dump_json(),
            "routes": {path: json.dumps(route) for path, route in routes.items()},
            "signature": self.signature,
            "source": self.source,
            "schema": str(self.program.schema_version),
            "afresh": self.afresh,
        }


class SkippedNode(NamedTuple):
    """A node that a user skips: its next run is recorded as skipped."""

    name: str
    reason: Reason
    #: The for_each nodes of its block whose list it makes.
    lists: tuple[str, ...] = ()

    def argument(self) -> dict[str, JsonValue]:
        """Convert the skipped node to an argument of the Lua function `control`."""
        reason = self.reason.model_dump(mode="json", exclude_none=True)
        return {"name": self.name, "reason": reason, "lists": [*self.lists]}


class ResumePlan(NamedTuple):
    """How a session resumes. The empty plan continues where the session is."""

    rewind: Rewind | None = None
    #: The session's `updated` and `ended` fields that the plan was computed from; the transition
    #: refuses the plan if they have changed.
    as_of: str | None = None
    ended: str | None = None
    #: The address after which it resumes, if the caller named a point.
    after: str | None = None
    adopts: Adoption | None = None
    limits: Mapping[str, int] = MappingProxyType({})
    #: Nodes of the innermost block that is opened, whose next runs are skipped.
    skips: tuple[SkippedNode, ...] = ()

    def arguments(self) -> dict[str, JsonValue]:
        """Convert the plan of a resume to arguments of the Lua function `control`."""
        return {
            "as_of": self.as_of,
            "ended": self.ended,
            "after": self.after,
            "adopts": self.adopts.argument() if self.adopts else None,
            "skips": [skipped.argument() for skipped in self.skips],
            **(self.rewind.arguments() if self.rewind else {}),
        }
