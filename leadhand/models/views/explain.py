"""Views that explain a session, of what needs a person, and of messages and questions."""

from __future__ import annotations

from pydantic import JsonValue

from leadhand.models.verdicts import Counts
from leadhand.models.views.plan import OwnFolderView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import View


class Cause(View):
    """One link of the chain of causes."""

    code: str
    text: str = ""
    at: str | None = None
    #: The name of that step or loop as its document has it; empty in a child session.
    label: str = ""


class Wait(View):
    """Why one step waits, or which worker runs it."""

    session: str = ""
    address: str = ""
    label: str = ""
    state: str = ""
    #: running, lost, queue, window, no_worker, place_gone, lock, rate, retry, timer, human, child,
    #: plan, schema, trouble (Redis or a worker cannot work), or the session's status.
    why: str
    text: str
    since: str | None = None
    until: str | None = None
    queue: str | None = None
    lock: str | None = None
    #: Sessions that hold the lock.
    holders: list[str] = []
    question: str | None = None
    child: str | None = None
    #: The waits of the child session.
    beneath: list[Wait] = []
    #: Commands to run next.
    next: list[str] = []


class CheckSeen(View):
    """The newest verdict of a check, as a question shows it."""

    name: str
    verdict: str | None = None
    #: The tests that it ran; null if they are not known.
    counts: Counts | None = None


class SeenWork(View):
    """What a question shows of the work. Its answer counts for this state of the folder only."""

    #: The digest of the folder.
    digest: str
    #: The files that the session has changed, at most 100; null if they are not known.
    files: list[str] | None = None
    #: How many they are.
    count: int = 0
    #: The newest verdict of each check.
    checks: list[CheckSeen] = []


class QuestionView(View):
    """An open question to a person: a step that waits for its answer."""

    session: str
    #: The session's label or name.
    name: str
    address: str
    question: str
    #: When the step started to ask.
    since: str | None = None
    #: When the step has its default as the answer, or fails without one.
    until: str | None = None
    #: The command that answers it; replace what is in capitals by the answer.
    answer: str
    #: The fields of the answer, as a JSON Schema; null: it has none.
    form: dict[str, JsonValue] | None = None
    #: The answer is one of these; empty: it is a text, or the fields of the form.
    choices: list[str] = []
    #: The answer at the deadline: its text, choice and fields; null: the step fails then.
    default: dict[str, JsonValue] | None = None
    #: The work that the answer is about; null: the session has no folder, or it cannot be compared.
    seen: SeenWork | None = None
    #: `plan`: the draft of a plan, which is approved, changed or edited; null: anything else.
    about: str | None = None


class Met(View):
    """An attempt that was running when its session was stopped, exited or aborted."""

    session: str
    address: str
    worker: str
    #: released (handed back), settled, cancelled, expired (its worker was lost), retried, parked,
    #: or running still.
    became: str
    at: str | None = None


class ReceiptView(View):
    """The attempts that the last stop, exit or abort interrupted, in the whole session tree."""

    session: str
    status: str
    #: None if there was no stop, exit or abort.
    control: str | None = None
    asked_at: str | None = None
    #: Whether all attempts have ended.
    done: bool = False
    items: list[Met] = []


class SuggestedAction(View):
    """A call that may bring a session on, such as `POST /v1/sessions/ID/VERB`."""

    #: resume, retry, skip, fork or rerun.
    verb: str
    session: str
    #: The step that it is about, by its name where it has one: `step` in the body of the call.
    address: str | None = None
    #: Further fields of the body.
    arguments: dict[str, JsonValue] = {}
    #: What it is expected to change.
    why: str
    #: The same as a command.
    command: str


class ExplainView(View):
    """Why a session waits or why it ended, and what to do next."""

    session: str
    status: str
    text: str
    waits: list[Wait] = []
    #: The chain of causes, the root cause last.
    causes: list[Cause] = []
    #: The folder that it has to itself, if it was started with `worktree`.
    worktree: OwnFolderView | None = None
    #: Commands to run next.
    next: list[str] = []
    #: Of a session that has ended: what to do, by what failed, the most promising first.
    actions: list[SuggestedAction] = []


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


class InboxMessage(View):
    """A message to a session's turns."""

    #: From 1, in the order of arrival.
    id: int
    at: str
    #: hint (of a person), notice, report, proposal, end, or another word.
    kind: str
    #: The child session or the token that sent it.
    sender: str
    text: str
    data: JsonValue = None
    #: Whether it calls for a person until it is acknowledged.
    escalates: bool = False
    #: When it was acknowledged, and by which turn (its address) or other reader.
    read_at: str | None = None
    read_by: str | None = None
