"""Reports each trouble that keeps sessions waiting once, such as a full disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from leadhand.models.text import plain


class TroubleReport:
    """Reports a trouble when it is new; one that ends and comes back is new again.

    >>> said = []
    >>> report = TroubleReport(said.append)
    >>> for troubles in (["a"], ["a", "b"], [], ["a"]):
    ...     report.note("0000000a", troubles)
    >>> said
    ['a', 'b', 'a']
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self._say = say
        #: The troubles of each session that has some. Threads may share a client.
        self._known: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

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
