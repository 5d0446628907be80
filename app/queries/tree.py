"""Queries for trees of sessions: who started whom, how each is, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from app.domain.clock import iso
from app.domain.ids import SessionRef
from app.domain.outcomes import MICROS
from app.domain.program import Program
from app.queries.about_loop import about_loop
from app.queries.phases import Phases
from app.queries.presenters import depth_of, reason_of
from app.queries.shown_status import shown_status
from app.store.store import Store
from leadhand.errors import KeyDamaged, ProgramNewer, SessionUnknown
from leadhand.models.views.session import TreeCause, TreeNode, TreeView

#: Maximum sessions between a session and the root that are followed upwards.
DEEPEST = 100

Fields = Mapping[str, str]


class Trees:
    """Builds views of trees. All methods raise SessionUnknown for an unknown id."""

    def __init__(self, store: Store, read: Callable[[str], Program]) -> None:
        self._store = store
        self._read = read

    def tree(self, session: str, *, limit: int = 200) -> TreeView:
        """Returns a session and its descendants, at most `limit`, parents first, and its causes.

        At most `limit` sessions, the upper levels first.
        """
        ref, fields = self._session(session)
        known = {session: fields}
        below: dict[str, list[str]] = {}
        damaged: list[str] = []
        level, left_out = [session], 0
        while level:
            following: list[str] = []
            for one in level:
                children = self._children(SessionRef(one, ref.root), known[one], damaged)
                room = limit - len(known)
                left_out += max(0, len(children) - room)
                below[one] = list(children)[:room]
                known |= {child: children[child] for child in below[one]}
                following += below[one]
            level = following
        shown = {SessionRef(one, ref.root): known[one] for one in _in_order(session, below)}
        items = self._nodes(shown, damaged)
        if session in damaged:
            raise KeyDamaged
        return TreeView(
            session=session,
            root=ref.root,
            items=items,
            damaged=list(dict.fromkeys(damaged)),
            causes=list(self._causes(ref, fields)),
            note=_note(len(known), left_out),
        )

    def is_within(self, session: str, top: str) -> bool:
        """Whether a session is `top` itself or its descendant, also one detached from it."""
        ref = self._store.ref(session)
        for _ in range(DEEPEST):
            if ref is None or ref.id == top:
                return ref is not None
            fields = self._store.values(ref, "session", ["parent", "detached_from"])
            above = _above(fields)
            ref = SessionRef(above, ref.root) if above else None
        return False

    def _session(self, session: str) -> tuple[SessionRef, Fields]:
        ref = self._store.ref(session)
        fields = self._store.fields(ref) if ref is not None else {}
        if ref is None or "status" not in fields:
            raise SessionUnknown(session)
        return ref, fields

    def _below(self, ref: SessionRef, fields: Fields) -> list[str]:
        """The children of a session, and the sessions that it let continue."""
        return [*self._store.children(ref), *fields.get("detached", "").split()]

    def _children(self, ref: SessionRef, fields: Fields, damaged: list[str]) -> dict[str, Fields]:
        """The fields of a session's children, the oldest first, without deleted ones.

        Sessions with a damaged key are added to `damaged`.
        """
        try:
            found = self._store.fields_of(self._below(ref, fields), damaged)
        except KeyDamaged:
            damaged.append(ref.id)
            return {}
        kept = {one: fields for one, (_, fields) in found.items() if "status" in fields}
        return dict(sorted(kept.items(), key=lambda item: (int(item[1]["created"]), item[0])))

    def _nodes(self, shown: Mapping[SessionRef, Fields], damaged: list[str]) -> list[TreeNode]:
        """The nodes of sessions, without those that have a damaged key."""
        now_ms, phases, nodes = self._store.now_ms(), Phases(self._store), list[TreeNode]()
        for ref, fields in shown.items():
            if ref.id in damaged:
                continue
            try:
                nodes.append(self._node(ref, fields, now_ms, phases))
            except KeyDamaged:
                damaged.append(ref.id)
        return nodes

    def _node(self, ref: SessionRef, fields: Fields, now_ms: int, phases: Phases) -> TreeNode:
        began, ended = int(fields["created"]), fields.get("ended")
        about = about_loop(fields["kind"], self._program(fields["program"]))
        parent = json.loads(fields["parent"]) if fields.get("parent") else {}
        return TreeNode(
            id=ref.id,
            parent=parent.get("session"),
            started_by=parent.get("address"),
            detached_from=fields.get("detached_from"),
            depth=depth_of(fields),
            kind=fields["kind"],
            title=fields.get("title") or fields.get("label") or about.task or fields["name"],
            status=shown_status(self._store, ref, fields),
            phase=phases.view(ref, fields),
            reason=reason_of(fields),
            created_at=iso(began),
            elapsed_s=max(0, (int(ended) if ended else now_ms) - began) / 1000,
            cost_usd=_cost_micros(fields) / MICROS,
        )

    def _program(self, program: str) -> Program | None:
        try:
            return self._read(program)
        except (ProgramNewer, SessionUnknown):
            return None

    def _causes(self, ref: SessionRef, fields: Fields) -> Iterator[TreeCause]:
        """Yields why the session ended, the root cause first, then the ends of those above it."""
        links = list(chain.chain()) if (chain := reason_of(fields)) else []
        for link in reversed(links):
            yield TreeCause(session=ref.id, code=link.code, text=link.text, at=link.at)
        for _ in range(DEEPEST):
            above = _above(fields)
            if above is None:
                return
            ref = SessionRef(above, ref.root)
            fields = self._store.fields(ref)
            if reason := reason_of(fields):
                yield TreeCause(session=above, code=reason.code, text=reason.text, at=reason.at)


def _above(fields: Fields) -> str | None:
    """The session that started a session, also if that has let it continue."""
    if fields.get("parent"):
        return str(json.loads(fields["parent"])["session"])
    return fields.get("detached_from")


def _cost_micros(fields: Fields) -> int:
    """The cost of a session and of those below it, reported or not."""
    return sum(max(0, int(fields.get(name, 0))) for name in ("cost_micros", "below/cost_micros"))


def _in_order(session: str, below: Mapping[str, list[str]]) -> Iterator[str]:
    yield session
    for child in below.get(session, ()):
        yield from _in_order(child, below)


def _note(shown: int, left_out: int) -> str | None:
    if not left_out:
        return None
    return (
        f"{shown} sessions are shown, {left_out} and those below them are left out;"
        " raise the limit, or ask for the tree of one of these sessions"
    )
