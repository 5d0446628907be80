"""How clients wait for sessions: when they look, and what they report meanwhile."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from leadhand.client.transport import Pause
from leadhand.contract import shared
from leadhand.contract.calls import Op, Steps
from leadhand.contract.requests import invalid_form, reads, request
from leadhand.contract.sessions import Sessions
from leadhand.contract.shared import Shared
from leadhand.errors import LeadhandError, SessionStillRuns, WaitTimedOut
from leadhand.models.patterns import SHARED_NAME
from leadhand.models.text import plain
from leadhand.models.views.explain import ExplainView, Wait
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.shared import LockGrant

if TYPE_CHECKING:
    from leadhand.client.client import Client

#: Waits of one session that are reported at once.
_MOST = 3
#: Seconds between two questions why a session waits: after a change of it, and without one, such
#: as the end of a worker. Who waits hears for what within 5 s.
_CHANGED_S, _SAME_S = 1.0, 4.0
#: Seconds between two polls: who waits hears for what within 5 s.
EVERY_S = 4.0
#: Waits that the events of a session show.
IN_EVENTS = frozenset(
    {"running", "lost", "lock", "rate", "retry", "timer", "human", "child", "plan"}
)
#: Seconds between two calls of one that waits for a lock: at first, and at most. The API keeps its
#: place in the line for 10 s.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0
_SOONEST_LOOK_S = 0.05
_LATEST_LOOK_S = 1.0


class TroubleReport:
    """Reports a trouble when it is new; one that ends and comes back is new again.

    >>> said = []
    >>> report = TroubleReport(said.append)
    >>> for troubles in (["a"], ["a", "b"], [], ["a"]):
    ...     report.note("0000000a", troubles)
    >>> said
    ['a', 'b', 'a']
    """

    def __init__(
        self, say: Callable[[str], None] | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        #: The troubles of each session that has some. Threads may share a client.
        self._known: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()
        #: Seconds without an end after which a wait is reported.
        self.patience_s = 2.0
        #: Words of `Wait.why` that the caller shows in another way.
        self.shown: frozenset[str] = frozenset()
        #: When each session was last explained, and its last change then.
        self._explained: dict[str, tuple[float, str | None]] = {}
        self._reported: set[Hashable] = set()

    @property
    def is_heard(self) -> bool:
        """Whether troubles are reported: the client has a callback for them."""
        return self._say is not None

    def note(self, session: str, troubles: Sequence[str]) -> None:
        """Call `say` with a session's troubles that are not known yet; an empty list resets it."""
        if self._say is None:
            return
        with self._lock:
            known = frozenset[str]().union(*self._known.values())
            self._known.pop(session, None)
            if troubles:
                self._known[session] = frozenset(troubles)
        for trouble in dict.fromkeys(troubles):
            if trouble not in known:
                self._say(plain(trouble, most=400))

    def is_due(self, view: SessionView, waited_s: float) -> bool:
        """Whether to ask for what a session waits: after 2 s, soon after a change, and later."""
        if self._say is None or view.ended or waited_s < self.patience_s:
            return False
        now = self._clock()
        with self._lock:
            at, change = self._explained.get(view.id, (now - _SAME_S, None))
            if now < at + (_SAME_S if view.updated_at == change else _CHANGED_S):
                return False
            self._explained[view.id] = now, view.updated_at
        return True

    def note_waits(self, view: ExplainView) -> None:
        """Call `say` with each wait of a session, unless it is known or shown already."""
        hidden = self.shown | {"trouble"}  # those are noted by themselves
        for wait in [one for one in view.waits if one.why not in hidden][:_MOST]:
            parts = (f"waiting for session {view.session}", wait.label or wait.address, wait.text)
            self.note_wait((view.session, *_key(wait)), ": ".join(filter(None, parts)))

    def note_wait(self, key: Hashable, text: str) -> None:
        """Call `say` with a wait that is not known by this key."""
        with self._lock:
            is_new = key not in self._reported
            self._reported.add(key)
        if is_new and self._say is not None:
            self._say(plain(text, most=400))


def _key(wait: Wait) -> Iterable[Hashable]:
    """What tells a wait from others: not its text, which has times."""
    return wait.address, wait.why, wait.lock, wait.child, *wait.holders


@contextmanager
def reporting_troubles(
    client: Client,
    sessions: Sequence[str],
    say: Callable[[str], None],
    *,
    on_view: Callable[[SessionView], None] = lambda _: None,
    shown: frozenset[str] = frozenset(),
) -> Iterator[None]:
    """Poll the sessions in a thread during the block; report troubles and waits once to `say`.

    If the client has a `say` of its own, that is used, so that its `wait` does not repeat it.
    `on_view` gets each session as it is every few seconds, from another thread. `shown` are the
    words of waits that the caller shows itself, during the block.
    """
    report = client.troubles if client.troubles.is_heard else TroubleReport(say)
    before, report.shown = report.shown, shown
    over = threading.Event()
    arguments = (client, sessions, report, over, on_view)
    thread = threading.Thread(target=_watch, args=arguments, name="troubles", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        report.shown = before


def _watch(
    client: Client,
    sessions: Sequence[str],
    report: TroubleReport,
    over: threading.Event,
    on_view: Callable[[SessionView], None],
) -> None:
    since = time.monotonic()
    while not over.wait(EVERY_S):
        try:
            for view in _views(client, sessions):
                if over.is_set():
                    return
                report.note(view.id, view.troubles)
                if report.is_due(view, time.monotonic() - since):
                    with suppress(LeadhandError):
                        report.note_waits(client.explain(view.id))
                on_view(view)
        except RuntimeError:  # the block has ended, and its caller has closed the client
            if over.is_set():
                return
            raise


def _views(client: Client, sessions: Sequence[str]) -> list[SessionView]:
    try:
        return [client.session(session) for session in sessions]
    except LeadhandError:
        return []  # the caller, who waits for the session, gets the error


def next_look_s(session: str, status: str, waited_s: float, timeout_s: float | None) -> float:
    """Returns the seconds until the next poll, at most 1. Raises WaitTimedOut after the timeout.

    A tenth of the time that was waited so far, at least 0.05, and never beyond the timeout.
    """
    if timeout_s is not None and waited_s >= timeout_s:
        raise WaitTimedOut(session, status, timeout_s)
    pause_s = min(max(waited_s / 10, _SOONEST_LOOK_S), _LATEST_LOOK_S)
    return pause_s if timeout_s is None else min(pause_s, max(timeout_s - waited_s, 0.0))


class Waits(Sessions, Shared):
    """Calls that wait: for the end of a session, or for a lock."""

    #: What keeps the sessions waiting that are waited for; it speaks by `say`.
    troubles: TroubleReport

    @Op
    def wait(self, session: str, timeout: float | None = None) -> Steps[ResultView]:
        """Wait until a session has ended and return its result. Raises WaitTimedOut.

        Meanwhile `say` is called with what blocks the session, such as a full disk, and after a
        few seconds with what it waits for.
        """
        since = time.monotonic()
        while True:
            view = yield from self.session(session)
            self.troubles.note(session, view.troubles)
            if view.ended:
                try:
                    return (yield from self.result(session))
                except SessionStillRuns:
                    pass  # it was resumed meanwhile
            if self.troubles.is_due(view, time.monotonic() - since):
                with suppress(LeadhandError):
                    self.troubles.note_waits((yield from self.explain(session)))
            yield Pause(next_look_s(session, view.status, time.monotonic() - since, timeout))

    @Op
    def acquire_lock(
        self, session: str, name: str, *, ttl_s: float = 60.0, wait_s: float | None = 0.0
    ) -> Steps[LockGrant]:
        """Take a named lock of a session's tree, waiting at most `wait_s`. Raises LockTaken.

        `wait_s` is None to wait forever. With the token of a body the lock belongs to its attempt,
        otherwise to the session; it is freed with its owner, and `ttl_s` after the last renewal.
        Raises LockTaken if another one has it, and LockRefused. After a few seconds `say` of the
        client is called with who has it.
        """
        since = time.monotonic()
        pause_s = FIRST_WAIT_S
        body = {"name": _checked(name), "holder": uuid.uuid4().hex, "ttl_s": ttl_s}
        end = None if wait_s is None else since + wait_s
        while True:
            queue = end is None or time.monotonic() < end
            grant = yield from reads(
                LockGrant, request(shared.ACQUIRE_LOCK, session, body={**body, "queue": queue})
            )
            if grant.state == "held":
                return grant
            if time.monotonic() - since >= self.troubles.patience_s:
                self.troubles.note_wait(*_wait_for_lock(session, grant))
            left_s = pause_s if end is None else max(0.0, end - time.monotonic())
            yield Pause(min(pause_s, left_s))
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)


def _wait_for_lock(session: str, grant: LockGrant) -> tuple[tuple[str, ...], str]:
    """Returns what keeps a waiter from a lock: a key that tells it from others, and a sentence."""
    owner = grant.held_by
    if owner is None:
        return (session, grant.name), f"waiting for lock {grant.name!r}; {grant.before} before"
    at = f" ({owner.address})" if owner.address else ""
    text = f"waiting for lock {grant.name!r}, held by session {owner.session}{at}"
    return (session, grant.name, owner.session, owner.address or ""), text


def _checked(name: str) -> str:
    """The name of a lock. Raises RequestInvalid."""
    if (refusal := invalid_form("name", name, SHARED_NAME)) is not None:
        raise refusal
    return name
