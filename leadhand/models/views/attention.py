"""Views of what needs a person: sessions with the reasons, sign-in links, and changes."""

from __future__ import annotations

from leadhand.models.views.explain import QuestionView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import View


class NeedView(View):
    """One reason why a person should look at a session."""

    #: question, approval (of a plan), proposal, failed, stuck (no worker takes a step), budget
    #: (80 % of a limit is used), messages.
    kind: str
    text: str
    #: The step that it is about.
    address: str | None = None
    since: str | None = None


class AttentionView(View):
    """A session that needs a person."""

    session: SessionView
    #: When it was called for last.
    since: str
    needs: list[NeedView]
    #: Its open questions.
    questions: list[QuestionView] = []


class ChangeView(View):
    """A change of a session, in the stream of all changes."""

    id: str
    session: str
    #: Its new status, or `attention`, `answered`, `annotated`, `deleted`.
    what: str


class SignInLink(View):
    """A link that signs a browser in to the dashboard once."""

    #: The secret is behind the #, so that no server and no proxy logs it.
    url: str
    expires_s: int
