"""Submits many documents with one round trip to the store and one to the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from app.domain.environment.definitions import Definitions
from app.domain.records import NewSession, Reply
from app.operations.submission.definitions import workers_by_definitions
from app.operations.submit import Asker, Draft, Submissions, Submitted
from app.operations.transitions import Transitions
from app.queries.fleet import Fleet
from app.store.store import Store
from leadhand.errors import LeadhandError
from leadhand.flows.documents import AnyDocument
from leadhand.models.views.fleet import WorkerView


class Item(NamedTuple):
    """A document of a batch, and the request's origin, which has its own key."""

    document: AnyDocument
    asker: Asker


class ItemRefused(Exception):
    """The item for which a whole batch is refused."""

    def __init__(self, number: int, error: LeadhandError) -> None:
        super().__init__(number, error)
        #: Its position in the batch, from 0.
        self.number = number
        self.error = error


#: A session, or why there is none.
Result = Submitted | LeadhandError
_Drafted = Draft | Submitted | LeadhandError


class Batches:
    """Creates the sessions of a batch; each one as if it were submitted by itself."""

    def __init__(
        self, store: Store, fleet: Fleet, submissions: Submissions, transitions: Transitions
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._submissions = submissions
        self._transitions = transitions

    def submit(self, items: Sequence[Item], *, all_or_none: bool) -> list[Result]:
        """Create a session for each item, in order; returns the session or the error of each.

        With `all_or_none` no session is created if any document is refused: raises ItemRefused.
        A quota or a label may still refuse single items, as it is known only at their creation.
        Raises StoreAway; the same call again completes what it began, by the keys of the items.
        """
        workers_of = workers_by_definitions(self._fleet)
        drafted = [self._draft(item, workers_of) for item in items]
        for number, one in enumerate(drafted):
            if all_or_none and isinstance(one, LeadhandError):
                raise ItemRefused(number, one)
        drafts = [one for one in drafted if isinstance(one, Draft)]
        created = self._create(drafts)
        used, results = set[str | None](), list[Result]()
        for item, one in zip(items, drafted, strict=True):
            key = item.asker.stored_key
            result = next(created) if isinstance(one, Draft) else one
            if key is not None and key in used:  # an item before it has the key now
                result = self._or_found(item, result)
            if isinstance(result, Submitted):
                used.add(key)
            results.append(result)
        return results

    def _draft(
        self, item: Item, workers_of: Callable[[Definitions | None], Sequence[WorkerView]]
    ) -> _Drafted:
        try:
            return self._submissions.draft(item.document, item.asker, workers_of=workers_of)
        except LeadhandError as error:
            return self._or_found(item, error)

    def _or_found(self, item: Item, result: Result) -> Result:
        """For a refused document, the session that has its key already."""
        if isinstance(result, Submitted):
            return result
        try:
            return self._submissions.find_submitted(item.asker) or result
        except LeadhandError as error:
            return error

    def _create(self, drafts: Sequence[Draft]) -> Iterator[Result]:
        news = [self._submissions.new_session(draft) for draft in drafts]
        replies = self._store.create_all(news) if news else []
        made = list(zip(drafts, news, replies, strict=True))
        created = [one for one in made if one[2].word == "created"]
        self._transitions.publish_all(
            [(new.ref, draft.program, reply.hints) for draft, new, reply in created]
        )
        for _, new, reply in created:
            self._transitions.after(new.ref, reply)
        for draft, new, reply in made:
            yield self._result(draft, new, reply)

    def _result(self, draft: Draft, new: NewSession, reply: Reply) -> Result:
        try:
            found = self._submissions.submitted(draft, new, reply)
            return self._submissions.create_draft(draft) if found is None else found
        except LeadhandError as error:
            return error
